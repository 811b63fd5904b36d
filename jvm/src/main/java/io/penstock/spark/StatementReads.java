package io.penstock.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The tables of a lake that a statement reads, each at its commit. Who decides on the commit of the statement is told
 * them: a table that a statement both reads and writes must not have changed in between.
 */
final class StatementReads {
  /** On the plan by which a table is read. It stays with the plan when a DataFrame becomes part of another one. */
  private static final TreeNodeTag<TableRead> READ = new TreeNodeTag<>("penstock.read");

  private StatementReads() {}

  /** Note on a plan that it reads a table, and the condition that all rows fulfil which are needed; null if none is known. */
  static void mark(LogicalPlan plan, LakeTable table, String where) {
    plan.setTagValue(READ, new TableRead(table, where));
  }

  /** What a plan reads of the lake of a catalogue, for a request. */
  static List<Map<String, Object>> of(PenstockCatalog catalog, LogicalPlan plan) {
    List<TableRead> found = new ArrayList<>();
    collect(plan, found);
    return told(catalog, found);
  }

  /** What the subqueries of an expression read of it. */
  static List<Map<String, Object>> of(PenstockCatalog catalog, Expression expression) {
    List<TableRead> found = new ArrayList<>();
    collect(expression, found);
    return told(catalog, found);
  }

  private static void collect(LogicalPlan plan, List<TableRead> found) {
    if (plan.getTagValue(READ).isDefined()) {
      found.add(plan.getTagValue(READ).get());
      return; // what is below is how the table's files are read
    }
    if (plan instanceof DataSourceV2Relation relation && relation.table() instanceof LakeTable table) {
      found.add(new TableRead(table, null)); // in a subquery, which is replaced when the statement is carried out
    }
    CollectionConverters.asJava(plan.children()).forEach(one -> collect(one, found));
    CollectionConverters.asJava(plan.subqueries()).forEach(one -> collect(one, found));
  }

  private static void collect(Expression expression, List<TableRead> found) {
    if (expression instanceof SubqueryExpression subquery) {
      collect(subquery.plan(), found);
    }
    CollectionConverters.asJava(expression.children()).forEach(one -> collect(one, found));
  }

  private static List<Map<String, Object>> told(PenstockCatalog catalog, List<TableRead> reads) {
    String lake = catalog.lake();
    return reads.stream().filter(one -> one.table.catalog().lake().equals(lake)).map(TableRead::told).distinct().toList();
  }

  /** A table as it was looked up, and which of its rows are needed. */
  private record TableRead(LakeTable table, String where) {
    Map<String, Object> told() {
      Map<String, Object> facts = new HashMap<>();
      for (String name : List.of("key", "pin", "branch", "is_past", "version")) {
        if (table.facts().hasNonNull(name)) {
          facts.put(name, table.facts().get(name));
        }
      }
      Map<String, Object> told = new HashMap<>();
      told.put("table", facts);
      told.put("where", where);
      return told;
    }
  }
}
