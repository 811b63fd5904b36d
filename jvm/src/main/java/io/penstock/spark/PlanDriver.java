package io.penstock.spark;

import java.util.List;
import org.apache.spark.sql.SparkSession;

/** A driver's Python process: it makes and runs plans of Spark's, which a server cannot. */
public interface PlanDriver extends JobDriver {
  /**
   * Do a step of a statement that has rows.
   *
   * @param step plan (of a read), changes, widen (of a table), stream, write, batch (of a stream), delete, update or merge
   * @param session the session that the statement runs in
   * @param request what is known of it, as JSON
   * @param parts the DataFrames and columns that the request names by their places in this list
   * @return a DataFrame for changes and stream, and for a plan that cannot be told; otherwise the answer as JSON, which is
   *     an error as in {@link JobDriver#answer}
   */
  Object act(String step, SparkSession session, String request, List<Object> parts);
}
