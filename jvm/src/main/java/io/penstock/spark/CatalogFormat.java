package io.penstock.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A format of tables that Spark has no source of its own for, so that {@code df.write.format(…).saveAsTable(…)} reaches
 * the catalogue, which makes the table. Whatever does without a catalogue is refused.
 */
public class CatalogFormat implements TableProvider {
  private final String format;

  /**
   * For a format.
   *
   * @param format as a program names it
   */
  protected CatalogFormat(String format) {
    this.format = format;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    throw refusal();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    throw refusal();
  }

  private JobRefused refusal() {
    return new JobRefused(
        "this Spark has no source of its own for the format '"
            + format
            + "': name a table of a lake, as in saveAsTable(\"lake.sales.orders\") and spark.table(\"lake.sales.orders\")");
  }
}
