package io.penstock.spark;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The releases of Spark that these classes are for. Classes that they need are missing in others. */
public final class SparkVersion {
  private static final int MAJOR = 4;
  private static final int OLDEST_MINOR = 1;
  private static final Pattern NUMBERS = Pattern.compile("(\\d+)\\.(\\d+).*");

  /** Whether this Spark reads INSERT WITH SCHEMA EVOLUTION. */
  static final boolean HAS_WIDENING_INSERTS = !org.apache.spark.package$.MODULE$.SPARK_VERSION().startsWith("4.1.");

  private SparkVersion() {}

  /**
   * What is said of a Spark that these classes are not for.
   *
   * @return empty if they are for it
   */
  public static String problem(String version) {
    Matcher numbers = NUMBERS.matcher(version);
    if (numbers.matches()
        && Integer.parseInt(numbers.group(1)) == MAJOR
        && Integer.parseInt(numbers.group(2)) >= OLDEST_MINOR) {
      return "";
    }
    return "this jar of Penstock's is for Spark 4.1 and newer releases of Spark 4, and this is Spark " + version
        + ": start a Spark 4, or leave the jar out";
  }
}
