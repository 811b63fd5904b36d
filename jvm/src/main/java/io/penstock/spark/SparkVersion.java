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

  /** Whether this Spark lets catalogues have views, as {@link PenstockRelationCatalog} does. */
  static final boolean HAS_VIEWS = HAS_WIDENING_INSERTS;

  /** The catalogue with tables only, which every Spark has. */
  private static final String TABLE_CATALOG = "io.penstock.spark.PenstockCatalog";
  /** The one with views. It is named by its text alone: Spark 4.1 has no class that it extends. */
  static final String RELATION_CATALOG = "io.penstock.spark.PenstockRelationCatalog";
  /** The class that a setting names to have a lake as a catalogue, with all that this Spark can. */
  static final String CATALOG = HAS_VIEWS ? RELATION_CATALOG : TABLE_CATALOG;

  private SparkVersion() {}

  /** Whether a setting names a class that is a catalogue of a lake's. */
  static boolean isCatalog(String className) {
    return className.equals(TABLE_CATALOG) || className.equals(RELATION_CATALOG);
  }

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
