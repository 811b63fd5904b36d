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

  JobRefused(String message, Throwable cause) {
    super(message, cause);
  }
}
