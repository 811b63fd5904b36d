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

  /** The general error of SQL. */
  private static final String GENERAL = "HY000";

  private final String state;

  LakeRefused(String message) {
    this(message, Option.empty(), GENERAL);
  }

  /**
   * An error that Spark has, too, with a message of the lake's.
   *
   * @param condition what Spark calls it
   * @param state what SQL calls it
   */
  LakeRefused(String message, String condition, String state) {
    this("[" + condition + "] " + message, Option.apply(condition), state);
  }

  private LakeRefused(String message, Option<String> condition, String state) {
    super(
        message, Option.empty(), Option.empty(), Option.empty(), condition,
        scala.collection.immutable.Map$.MODULE$.empty(), new QueryContext[0]);
    this.state = state;
  }

  @Override
  public String getSqlState() {
    return state;
  }

  @Override
  public synchronized Throwable fillInStackTrace() {
    return this;
  }
}
