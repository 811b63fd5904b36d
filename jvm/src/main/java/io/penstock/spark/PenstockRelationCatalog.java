package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NoSuchViewException;
import org.apache.spark.sql.catalyst.analysis.ViewAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Relation;
import org.apache.spark.sql.connector.catalog.RelationCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableSummary;
import org.apache.spark.sql.connector.catalog.View;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A lake as a catalogue with tables and views: {@code spark.sql.catalog.<name> =
 * io.penstock.spark.PenstockRelationCatalog}. Spark 4.1 has no class that it extends, and lets no catalogue have views.
 *
 * <p>A view is what Spark hands over of one, and handed to Spark again. Spark expands it.
 */
public final class PenstockRelationCatalog extends PenstockCatalog implements RelationCatalog {
  /**
   * The property by which a view that a statement changes is known to be the one that the statement has read. Spark keeps
   * it with the others, lets no statement set it, and shows it to nobody: a view has no location.
   */
  private static final String BASE = TableCatalog.PROP_LOCATION;

  /** Made by Spark. */
  public PenstockRelationCatalog() {}

  @Override
  boolean hasViews() {
    return true;
  }

  @Override
  NoSuchTableException refuseView(Identifier ident) {
    return new NoSuchTableException(ident);
  }

  @Override
  public Relation loadRelation(Identifier ident) throws NoSuchTableException {
    JsonNode answer = find(ident, Map.of());
    return answer.hasNonNull("view") ? view(ident, answer) : new LakeTable(this, ident, answer);
  }

  private View view(Identifier ident, JsonNode facts) {
    JsonNode view = facts.path("view");
    String commit = facts.path("pin").path("commit").asText();
    Map<String, String> properties = texts(facts.path("properties"));
    properties.put(BASE, commit);
    Map<String, String> settings = texts(view.path("settings"));
    if (ViewRevisions.hasRevision(ident)) {
      if (SQLConf.get().useCurrentSQLConfigsForView()) {
        throw new JobRefused(
                "the view '" + ident + "' cannot be read at a revision while the setting '"
                    + SQLConf.USE_CURRENT_SQL_CONFIGS_FOR_VIEW().key()
                    + "' is true: set it to false; with it Spark drops the settings of views, and with these the commit")
            .inAnalysis();
      }
      settings.put(ViewRevisions.setting(this), commit);
      MappedReads.pinned().put(commit, facts.path("pin"));
    }
    View.Builder builder =
        new View.Builder()
            .withSchema((StructType) DataType.fromJson(view.path("columns").asText()))
            .withProperties(properties)
            .withQueryText(view.path("text").asText())
            .withCurrentNamespace(list(view.path("namespace")))
            .withSqlConfigs(settings)
            .withQueryColumnNames(list(view.path("query_columns")));
    if (!view.path("catalog").asText().isEmpty()) {
      builder.withCurrentCatalog(view.path("catalog").asText());
    }
    if (!view.path("schema_mode").asText().isEmpty()) {
      builder.withSchemaMode(view.path("schema_mode").asText());
    }
    return builder.build();
  }

  private static String[] list(JsonNode texts) {
    List<String> found = new ArrayList<>();
    texts.forEach(one -> found.add(one.asText()));
    return found.toArray(new String[0]);
  }

  @Override
  public Identifier[] listViews(String[] namespace) throws NoSuchNamespaceException {
    return identifiers(namespace, listed(namespace).path("views"));
  }

  /** In one question. Spark would look up every table to see what kind it is, which it does not show. */
  @Override
  public TableSummary[] listRelationSummaries(String[] namespace) throws NoSuchNamespaceException {
    JsonNode answer = listed(namespace);
    List<TableSummary> found = new ArrayList<>();
    for (Identifier one : identifiers(namespace, answer.path("tables"))) {
      found.add(TableSummary.of(one, TableSummary.MANAGED_TABLE_TYPE));
    }
    for (Identifier one : identifiers(namespace, answer.path("views"))) {
      found.add(TableSummary.of(one, TableSummary.VIEW_TABLE_TYPE));
    }
    return found.toArray(new TableSummary[0]);
  }

  @Override
  public View createView(Identifier ident, View wanted) throws ViewAlreadyExistsException {
    if (write(ident, wanted, "create").path("is_there").asBoolean()) {
      throw new ViewAlreadyExistsException(ident);
    }
    return wanted;
  }

  @Override
  public View replaceView(Identifier ident, View wanted) throws NoSuchViewException {
    if (write(ident, wanted, "replace").path("is_absent").asBoolean()) {
      throw new NoSuchViewException(ident);
    }
    return wanted;
  }

  @Override
  public View createOrReplaceView(Identifier ident, View wanted) throws ViewAlreadyExistsException {
    if (write(ident, wanted, "upsert").path("is_there").asBoolean()) {
      throw new ViewAlreadyExistsException(ident);
    }
    return wanted;
  }

  private JsonNode write(Identifier ident, View wanted, String mode) {
    Map<String, String> properties = new HashMap<>(wanted.properties());
    Map<String, Object> view = new HashMap<>();
    view.put("base", properties.containsKey(BASE) ? properties.remove(BASE) : "");
    view.put("text", wanted.queryText());
    view.put("columns", CatalogV2Util.v2ColumnsToStructType(wanted.columns()).json());
    view.put("query_columns", wanted.queryColumnNames());
    view.put("catalog", wanted.currentCatalog() == null ? "" : wanted.currentCatalog());
    view.put("namespace", wanted.currentNamespace());
    view.put("settings", wanted.sqlConfigs());
    view.put("schema_mode", wanted.schemaMode() == null ? "" : wanted.schemaMode());
    return ask("write_view", Map.of("names", names(ident), "mode", mode, "properties", properties, "view", view));
  }

  @Override
  public boolean dropView(Identifier ident) {
    return ask("drop", Map.of("names", names(ident), "is_view", true)).path("is_done").asBoolean();
  }

  @Override
  public void renameView(Identifier before, Identifier after) throws NoSuchViewException, ViewAlreadyExistsException {
    JsonNode answer = ask("rename", Map.of("names", names(before), "to", names(after), "is_view", true));
    if (answer.path("is_absent").asBoolean()) {
      throw new NoSuchViewException(before);
    }
    if (answer.path("is_there").asBoolean()) {
      throw new ViewAlreadyExistsException(after);
    }
  }
}
