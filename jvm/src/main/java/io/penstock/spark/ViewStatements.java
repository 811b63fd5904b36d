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
 * Statements about views of a lake, which has none: to make one is refused in a sentence that says what to use instead.
 * To list them, and to drop one if it is there, is no mistake.
 */
final class ViewStatements extends Rule<LogicalPlan> {
  private final org.apache.spark.sql.classic.SparkSession session;

  ViewStatements(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof CreateView create && isOfLake(create.child())) {
      throw refusal(create.child());
    }
    if (plan instanceof AlterViewAs alter && isOfLake(alter.child())) {
      throw refusal(alter.child());
    }
    if (plan instanceof DropView drop && isOfLake(drop.child())) {
      if (drop.ifExists()) {
        return new NoopCommand("DROP VIEW", parts(drop.child()));
      }
      throw refusal(drop.child());
    }
    if (plan instanceof ShowViews show
        && !show.namespace().resolved()
        && CatalogNames.lakeOfNamespace(session, namespace(show.namespace())) != null) {
      return LocalRelation$.MODULE$.apply(show.output());
    }
    return plan;
  }

  /** The name of a namespace; empty for the current one. */
  private static List<String> namespace(LogicalPlan named) {
    return named instanceof UnresolvedNamespace known
        ? CollectionConverters.asJava(known.multipartIdentifier())
        : List.of();
  }

  /** Whether a statement names a view of a lake, and no temporary one. */
  private boolean isOfLake(LogicalPlan named) {
    Seq<String> name = parts(named);
    return name != null
        && !session.sessionState().catalog().isTempView(name)
        && CatalogNames.lakeOf(session, CollectionConverters.asJava(name)) != null;
  }

  private static Seq<String> parts(LogicalPlan named) {
    return named instanceof UnresolvedIdentifier ident
        ? ident.nameParts()
        : named instanceof UnresolvedView view ? view.multipartIdentifier() : null;
  }

  private RuntimeException refusal(LogicalPlan named) {
    List<String> name = CollectionConverters.asJava(parts(named));
    return new JobRefused(
            "a lake has no views, so '"
                + String.join(".", name)
                + "' cannot be one: use CREATE TEMPORARY VIEW, CREATE TABLE … AS SELECT, or a view of spark_catalog,"
                + " which may read tables of the lake")
        .inAnalysis();
  }
}
