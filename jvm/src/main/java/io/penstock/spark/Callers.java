package io.penstock.spark;

/**
 * Which of Spark's methods the running thread is in. Some plans are the same for two calls of a program that ask for
 * different things, and only the call tells them apart.
 */
final class Callers {
  private static final StackWalker STACK = StackWalker.getInstance();
  private static final String WRITER = "org.apache.spark.sql.classic.DataFrameWriter";
  private static final String NEWER_WRITER = "org.apache.spark.sql.classic.DataFrameWriterV2";
  private static final String EXPLAIN = "org.apache.spark.sql.execution.command.ExplainCommand";
  private static final String CATALOG = "org.apache.spark.sql.classic.Catalog";

  private Callers() {}

  /** Whether it is {@code df.writeTo(…)}, which has a format only if the program named one. */
  static boolean isWriteTo() {
    return isIn(NEWER_WRITER);
  }

  /** Whether it is {@code df.write}. */
  static boolean isWrite() {
    return isIn(WRITER);
  }

  /** Whether it is {@code spark.catalog.refreshTable(…)}, which reads no rows. */
  static boolean isRefreshTable() {
    return isCatalog("refreshTable");
  }

  /** Whether it is {@code spark.catalog.listTables(…)} or {@code listFunctions(…)}. */
  static boolean isListing() {
    return isCatalog("listTables") || isCatalog("listFunctions");
  }

  /** Whether a statement is explained, and will not run. */
  static boolean isExplain() {
    return isIn(EXPLAIN);
  }

  private static boolean isIn(String className) {
    return STACK.walk(frames -> frames.anyMatch(frame -> frame.getClassName().equals(className)));
  }

  private static boolean isCatalog(String method) {
    return STACK.walk(
        frames ->
            frames.anyMatch(
                frame -> frame.getClassName().equals(CATALOG) && frame.getMethodName().equals(method)));
  }
}
