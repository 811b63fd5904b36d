package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of a lake at one commit, as Spark's analysis knows it.
 *
 * <p>Plans that read or write it are replaced once they are analysed ({@link CatalogPlans}), so that rows go the way
 * of penstock.spark: Spark never scans or writes this object.
 */
final class LakeTable implements SupportsRead, SupportsWrite, TruncatableTable {
  private static final Set<TableCapability> CAPABILITIES =
      Set.of(
          TableCapability.BATCH_READ,
          TableCapability.BATCH_WRITE,
          TableCapability.MICRO_BATCH_READ,
          TableCapability.STREAMING_WRITE,
          TableCapability.TRUNCATE,
          TableCapability.OVERWRITE_BY_FILTER,
          TableCapability.OVERWRITE_DYNAMIC);

  private final PenstockCatalog catalog;
  private final Identifier ident;
  private final JsonNode facts;
  private final StructType schema;
  private final boolean isWidened;

  LakeTable(PenstockCatalog catalog, Identifier ident, JsonNode facts) {
    this(catalog, ident, facts, false);
  }

  LakeTable(PenstockCatalog catalog, Identifier ident, JsonNode facts, boolean isWidened) {
    this.isWidened = isWidened;
    this.catalog = catalog;
    this.ident = ident;
    this.facts = facts;
    String known = facts.path("schema").asText();
    // Of files whose columns nobody has said, Spark looks into some.
    StructType columns = known.isEmpty() ? plan(null).schema() : (StructType) DataType.fromJson(known);
    schema = catalog.hasPython() ? columns : columns.asNullable();
  }

  /** The rows, for a driver without Python. What is not true for a row of them may be left out. */
  LogicalPlan plan(String where) {
    Map<String, Object> request = new HashMap<>();
    request.put("table", facts);
    request.put("where", where);
    return PlannedScan.plan(catalog.session(), catalog.driver(), catalog.ask("plan", request));
  }

  PenstockCatalog catalog() {
    return catalog;
  }

  Identifier ident() {
    return ident;
  }

  /** What was answered when the table was looked up, for later questions about it. */
  JsonNode facts() {
    return facts;
  }

  /** Whether it is shown with columns that the statement is to add ({@link WidenedTables}). */
  boolean isWidened() {
    return isWidened;
  }

  @Override
  public String name() {
    return catalog.name() + "." + String.join(".", PenstockCatalog.names(ident));
  }

  @Override
  public Column[] columns() {
    List<Column> found = new ArrayList<>();
    for (StructField one : schema.fields()) {
      String comment = one.getComment().isDefined() ? one.getComment().get() : null;
      found.add(Column.create(one.name(), one.dataType(), one.nullable(), comment, notes(one.name())));
    }
    return found.toArray(new Column[0]);
  }

  /** What Spark has to know to put the default of a column into rows that come without it; null if there is none. */
  private String notes(String column) {
    JsonNode value = facts.path("defaults").path(column);
    if (value.isMissingNode()) {
      return null;
    }
    // The second is for rows of files that lack the column, which Spark does not read by this object.
    ObjectNode notes = JsonNodeFactory.instance.objectNode();
    return notes.put("CURRENT_DEFAULT", value.asText()).put("EXISTS_DEFAULT", "NULL").toString();
  }

  /** Whether the table gives values to a column by itself: a generated or an identity column. */
  boolean isComputed(String column) {
    for (JsonNode one : facts.path("computed")) {
      if (one.asText().equals(column)) {
        return true;
      }
    }
    return false;
  }

  @Override
  public Transform[] partitioning() {
    List<Transform> found = new ArrayList<>();
    facts.path("partition_by").forEach(one -> found.add(Expressions.identity("`" + one.asText().replace("`", "``") + "`")));
    return found.toArray(new Transform[0]);
  }

  @Override
  public Map<String, String> properties() {
    return PenstockCatalog.texts(facts.path("properties"));
  }

  @Override
  public Set<TableCapability> capabilities() {
    return CAPABILITIES;
  }

  @Override
  public boolean truncateTable() {
    JsonNode answer = catalog.ask("truncate", Map.of("table", facts));
    if (answer.has("write")) {
      ServerWrite.runEmpty(catalog, answer.get("write"), schema);
    }
    return true;
  }

  /** DESCRIBE EXTENDED makes a scan to ask what it knows. Nobody reads by it. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return () ->
        new Scan() {
          @Override
          public StructType readSchema() {
            return schema;
          }

          @Override
          public Batch toBatch() {
            throw withoutRules();
          }
        };
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    throw withoutRules();
  }

  private JobRefused withoutRules() {
    return new JobRefused(
        "Spark was started before Penstock's jar was there, so that " + name() + " can be neither read nor written:"
            + " start it with --jars penstock-spark.jar, or by penstock.spark.session(lake)");
  }
}
