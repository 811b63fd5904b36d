package io.penstock.spark;

import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;

/**
 * A statement that may not be done, or was not: the message is the lake's.
 *
 * <p>spark-sql shows errors that have a state of SQL by their message alone, and any other one with a trace of Java's. It
 * has none of its own, since the place in Java says nothing that the message does not.
 */
public final class LakeRefused extends AnalysisException {
  private static final long serialVersionUID = 1L;

  LakeRefused(String message) {
    super(
        message, Option.empty(), Option.empty(), Option.empty(), Option.empty(),
        scala.collection.immutable.Map$.MODULE$.empty(), new QueryContext[0]);
  }

  /** The general error. */
  @Override
  public String getSqlState() {
    return "HY000";
  }

  @Override
  public synchronized Throwable fillInStackTrace() {
    return this;
  }
}
