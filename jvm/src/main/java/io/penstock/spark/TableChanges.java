package io.penstock.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableChange;

/** Changes of ALTER TABLE, as they are told to who decides. */
final class TableChanges {
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
      told.put("is_nullable", added.isNullable());
      told.put("comment", added.comment());
      told.put("position", added.position() == null ? null : added.position().toString());
      told.put("default", added.defaultValue() == null ? null : added.defaultValue().getSql());
    } else if (change instanceof TableChange.RenameColumn renamed) {
      told.put("name", renamed.newName());
    } else if (change instanceof TableChange.UpdateColumnType update) {
      told.put("type", update.newDataType().json());
    } else if (change instanceof TableChange.UpdateColumnComment update) {
      told.put("comment", update.newComment());
    } else if (change instanceof TableChange.UpdateColumnNullability update) {
      told.put("is_nullable", update.nullable());
    } else if (change instanceof TableChange.DeleteColumn deleted) {
      told.put("if_exists", deleted.ifExists());
    }
    return told;
  }
}
