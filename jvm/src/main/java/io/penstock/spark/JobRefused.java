package io.penstock.spark;

/**
 * A job that may not be done, or was not: the message is the lake's.
 *
 * <p>PySpark shows errors of the class above by their message alone, and any other one with a trace of the JVM.
 */
public final class JobRefused extends IllegalArgumentException {
  private static final long serialVersionUID = 1L;

  JobRefused(String message) {
    super(message);
  }

  /**
   * With what code may want to know of it, and users need not read.
   *
   * @param details a line of text, found again among the suppressed errors
   */
  JobRefused(String message, String details) {
    super(message);
    if (!details.isEmpty()) {
      addSuppressed(new Details(details));
    }
  }

  JobRefused(String message, Throwable cause) {
    super(message, cause);
  }

  /** The same as an error of another class, for where Spark makes something else of this one. */
  UnsupportedOperationException unsupported() {
    UnsupportedOperationException same = new UnsupportedOperationException(getMessage());
    for (Throwable details : getSuppressed()) {
      same.addSuppressed(details);
    }
    return same;
  }

  /**
   * The same as an error of Spark's analysis, for drivers without Python. Scala checks no exceptions, so that it may be
   * raised anywhere.
   */
  RuntimeException inAnalysis() {
    return inAnalysis(new LakeRefused(getMessage()));
  }

  /** The same as Spark's error of a table that is not there, which programs know. */
  RuntimeException ofMissingTable() {
    return inAnalysis(new LakeRefused(getMessage(), "TABLE_OR_VIEW_NOT_FOUND", "42P01"));
  }

  /** The same as Spark's error of a view that is used as if it was a table. */
  RuntimeException ofView() {
    return inAnalysis(new LakeRefused(getMessage(), "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE", "42809"));
  }

  private RuntimeException inAnalysis(LakeRefused same) {
    for (Throwable details : getSuppressed()) {
      same.addSuppressed(details);
    }
    return JobRefused.<RuntimeException>unchecked(same);
  }

  @SuppressWarnings("unchecked")
  private static <T extends Throwable> RuntimeException unchecked(Throwable problem) throws T {
    throw (T) problem;
  }

  /** Not raised by anything: it only says something. */
  private static final class Details extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Details(String text) {
      super(text, null, false, false);
    }
  }
}
