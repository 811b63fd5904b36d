package io.penstock.spark;

import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.UnresolvedView;
import org.apache.spark.sql.catalyst.plans.logical.AlterViewAs;
import org.apache.spark.sql.catalyst.plans.logical.CreateView;
import org.apache.spark.sql.catalyst.plans.logical.DropView;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NoopCommand;
import org.apache.spark.sql.catalyst.plans.logical.ShowViews;
import org.apache.spark.sql.catalyst.rules.Rule;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Statements about views of a lake whose catalogue has none, as in Spark 4.1: to make one is refused in a sentence that
 * says what to use instead. To list them, and to drop one if it is there, is no mistake.
 */
final class ViewStatements extends Rule<LogicalPlan> {
  private final org.apache.spark.sql.classic.SparkSession session;

  ViewStatements(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof CreateView create) {
      check(create.child());
    }
    if (plan instanceof AlterViewAs alter) {
      check(alter.child());
    }
    if (plan instanceof DropView drop && lakeOf(drop.child()) != null) {
      if (drop.ifExists()) {
        return new NoopCommand("DROP VIEW", parts(drop.child()));
      }
      check(drop.child());
    }
    if (plan instanceof ShowViews show && !show.namespace().resolved()) {
      PenstockCatalog catalog = CatalogNames.lakeOfNamespace(session, namespace(show.namespace()));
      return catalog == null || catalog.hasViews() ? plan : LocalRelation$.MODULE$.apply(show.output());
    }
    return plan;
  }

  /** The name of a namespace; empty for the current one. */
  private static List<String> namespace(LogicalPlan named) {
    return named instanceof UnresolvedNamespace known
        ? CollectionConverters.asJava(known.multipartIdentifier())
        : List.of();
  }

  private void check(LogicalPlan named) {
    PenstockCatalog catalog = lakeOf(named);
    if (catalog != null) {
      String name = String.join(".", CollectionConverters.asJava(parts(named)));
      throw refusal(catalog, "'" + name + "' cannot be a view").inAnalysis();
    }
  }

  /** The lake without views whose catalogue a view that a statement names belongs to; null if it is none. */
  private PenstockCatalog lakeOf(LogicalPlan named) {
    Seq<String> name = parts(named);
    if (name == null || session.sessionState().catalog().isTempView(name)) {
      return null;
    }
    PenstockCatalog catalog = CatalogNames.lakeOf(session, CollectionConverters.asJava(name));
    return catalog == null || catalog.hasViews() ? null : catalog;
  }

  private static Seq<String> parts(LogicalPlan named) {
    return named instanceof UnresolvedIdentifier ident
        ? ident.nameParts()
        : named instanceof UnresolvedView view ? view.multipartIdentifier() : null;
  }

  /** What is said where a catalogue has no views, and how to have them. */
  static JobRefused refusal(PenstockCatalog catalog, String problem) {
    return new JobRefused(
        problem
            + (SparkVersion.HAS_VIEWS
                ? ": this catalog has tables only. Views need the setting spark.sql.catalog." + catalog.name()
                    + " = " + SparkVersion.RELATION_CATALOG
                : ": views of a lake need Spark 4.2 or newer, and this is Spark "
                    + org.apache.spark.package$.MODULE$.SPARK_VERSION())
            + ". CREATE TEMPORARY VIEW, CREATE TABLE … AS SELECT, and views of spark_catalog, which may read tables of"
            + " the lake, work here, too");
  }
}
