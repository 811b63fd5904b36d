package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Changes of ALTER TABLE, as they are told to who decides. */
final class TableChanges {
  private static final ObjectMapper JSON = new ObjectMapper();

  private TableChanges() {}

  /** One change: its kind and what it is about. */
  static Map<String, Object> told(TableChange change) {
    Map<String, Object> told = new HashMap<>();
    told.put("kind", change.getClass().getSimpleName());
    if (change instanceof TableChange.ColumnChange column) {
      told.put("column", column.fieldNames());
    }
    if (change instanceof TableChange.SetProperty set) {
      told.put("name", set.property());
      told.put("value", set.value());
    } else if (change instanceof TableChange.RemoveProperty removed) {
      told.put("name", removed.property());
    } else if (change instanceof TableChange.AddColumn added) {
      told.put("type", added.dataType().json());
      told.put("collation", collation(added.dataType()));
      told.put("is_nullable", added.isNullable());
      told.put("comment", added.comment());
      told.put("position", added.position() == null ? null : added.position().toString());
      told.put("default", added.defaultValue() == null ? null : added.defaultValue().getSql());
    } else if (change instanceof TableChange.RenameColumn renamed) {
      told.put("name", renamed.newName());
    } else if (change instanceof TableChange.UpdateColumnType update) {
      told.put("type", update.newDataType().json());
      told.put("collation", collation(update.newDataType()));
    } else if (change instanceof TableChange.UpdateColumnComment update) {
      told.put("comment", update.newComment());
    } else if (change instanceof TableChange.UpdateColumnNullability update) {
      told.put("is_nullable", update.nullable());
    } else if (change instanceof TableChange.DeleteColumn deleted) {
      told.put("if_exists", deleted.ifExists());
    }
    return told;
  }

  /** A collation of a text in a type; empty if all are the usual one. Only the notes of a column tell of it. */
  private static String collation(DataType type) {
    try {
      JsonNode column = JSON.readTree(new StructType().add("c", type).json()).path("fields").path(0);
      var noted = column.findPath("__COLLATIONS").elements();
      return noted.hasNext() ? noted.next().asText() : "";
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }
}
