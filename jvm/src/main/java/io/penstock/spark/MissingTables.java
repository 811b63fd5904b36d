package io.penstock.spark;

import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.plans.logical.DropTable;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Names of a lake that stand for no table. Spark would only say that they are not found: who decides also says at which
 * revision they were looked up, and what was probably meant.
 */
final class MissingTables extends Rule<LogicalPlan> {
  private final org.apache.spark.sql.classic.SparkSession session;

  MissingTables(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    // What a statement writes to is not among its children.
    if (plan instanceof InsertIntoStatement insert) {
      check(insert.table());
    } else if (plan instanceof V2WriteCommand write) {
      check((LogicalPlan) write.table());
    } else if (plan instanceof DropTable drop
        && !drop.ifExists()
        && drop.child() instanceof ResolvedIdentifier named
        && named.catalog() instanceof PenstockCatalog catalog) {
      catalog.refuseIfAbsent(named.identifier());
    }
    plan.collectWithSubqueries(new Names());
    return plan;
  }

  private void check(LogicalPlan node) {
    Seq<String> name = name(node);
    if (name == null) {
      return;
    }
    List<String> parts = CollectionConverters.asJava(name);
    PenstockCatalog catalog = CatalogNames.lakeOf(session, parts);
    if (catalog != null
        && catalog.refuseIfAbsent(CatalogNames.identifier(session, parts)).hasNonNull("view")) {
      throw new JobRefused("'" + String.join(".", parts) + "' is a view, and a table is needed here").ofView();
    }
  }

  private static Seq<String> name(LogicalPlan node) {
    if (node instanceof RelationTimeTravel travel) {
      return name(travel.relation());
    }
    return node instanceof UnresolvedRelation relation
        ? relation.multipartIdentifier()
        : node instanceof UnresolvedTable table
            ? table.multipartIdentifier()
            : node instanceof UnresolvedTableOrView either ? either.multipartIdentifier() : null;
  }

  private final class Names extends AbstractPartialFunction<LogicalPlan, BoxedUnit> {
    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return name(node) != null;
    }

    @Override
    public <A extends LogicalPlan, B> B applyOrElse(A node, Function1<A, B> otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      check(node);
      @SuppressWarnings("unchecked")
      B done = (B) BoxedUnit.UNIT;
      return done;
    }
  }
}
