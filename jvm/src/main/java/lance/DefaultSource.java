package lance;

import io.penstock.spark.CatalogFormat;

/**
 * What Spark finds for {@code format("lance")} where Lance's own jar is not there: a format that is not registered is
 * looked for by a class of this name. With that jar it is Lance's.
 */
public final class DefaultSource extends CatalogFormat {
  /** Made by Spark. */
  public DefaultSource() {
    super("lance");
  }
}
