package delta;

import io.penstock.spark.CatalogFormat;

/**
 * What Spark finds for {@code format("delta")} where Delta's own jar is not there: a format that is not registered is
 * looked for by a class of this name. With Delta's jar it is Delta's.
 */
public final class DefaultSource extends CatalogFormat {
  /** Made by Spark. */
  public DefaultSource() {
    super("delta");
  }
}
