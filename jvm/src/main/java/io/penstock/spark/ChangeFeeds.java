package io.penstock.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias$;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.types.DataTypes;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The changes of a table: {@code table_changes('lake.sales.orders', 1, 5)}, and {@code lake.sales.orders CHANGES FROM
 * VERSION 1 TO VERSION 5} where Spark has such a clause. Both become the plan that penstock.spark.changes makes.
 */
final class ChangeFeeds extends Rule<LogicalPlan> {
  private static final String FUNCTION = "table_changes";
  private static final String CLAUSE = "RelationChanges";
  private static final String USAGE =
      "table_changes takes the name of a table, its first version and, if you like, the last one, as in"
          + " table_changes('lake.sales.orders', 1, 5)";

  private final org.apache.spark.sql.classic.SparkSession session;

  ChangeFeeds(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(() -> plan.transformUp(new Feeds()));
  }

  private final class Feeds extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return node instanceof UnresolvedTableValuedFunction function && isFeed(function)
          || node.getClass().getSimpleName().equals(CLAUSE);
    }

    @Override
    public <A extends LogicalPlan, B> B applyOrElse(A node, Function1<A, B> otherwise) {
      LogicalPlan found =
          !isDefinedAt(node)
              ? null
              : (LogicalPlan) node instanceof UnresolvedTableValuedFunction function ? ofFunction(function) : ofClause(node);
      @SuppressWarnings("unchecked")
      B result = found == null ? otherwise.apply(node) : (B) found;
      return result;
    }
  }

  private static boolean isFeed(UnresolvedTableValuedFunction function) {
    return function.name().size() == 1 && function.name().head().equalsIgnoreCase(FUNCTION);
  }

  /** The rows of a function; null if its table is none of a lake's. */
  private LogicalPlan ofFunction(UnresolvedTableValuedFunction function) {
    List<Expression> given = CollectionConverters.asJava(function.functionArgs());
    Object name = given.isEmpty() ? null : value(given.get(0));
    if (name == null) {
      return null;
    }
    LakeTable table;
    try {
      var parts = session.sessionState().sqlParser().parseMultipartIdentifier(name.toString());
      table = CatalogNames.find(session, CollectionConverters.asJava(parts));
    } catch (ParseException none) {
      return null;
    }
    if (table == null) {
      return null;
    }
    List<Long> versions = new ArrayList<>();
    for (Expression one : given.subList(1, given.size())) {
      if (!(value(one) instanceof Number number) || one.dataType().equals(DataTypes.TimestampType)) {
        throw new JobRefused(USAGE).inAnalysis();
      }
      versions.add(number.longValue());
    }
    if (versions.isEmpty() || versions.size() > 2) {
      throw new JobRefused(USAGE).inAnalysis();
    }
    return rows(table, versions.get(0), versions.size() == 2 ? versions.get(1) : null);
  }

  /** A value that is known already; null if it is none. */
  private static Object value(Expression expression) {
    return expression.resolved() && expression.foldable() ? expression.eval(InternalRow.empty()) : null;
  }

  /** The rows of a clause; null if its table is none of a lake's. Spark 4.1 has no classes for it. */
  private LogicalPlan ofClause(LogicalPlan clause) {
    if (!(clause.productElement(0) instanceof UnresolvedRelation named) || named.isStreaming()) {
      return null;
    }
    LakeTable table = CatalogNames.find(session, CollectionConverters.asJava(named.multipartIdentifier()));
    if (table == null) {
      return null;
    }
    try {
      Object context = clause.productElement(1);
      Object range = part(context, "range");
      if (!range.getClass().getSimpleName().equals("VersionRange")) {
        throw new JobRefused("the changes of " + table.name() + " are asked for by versions, as in CHANGES FROM VERSION 1").inAnalysis();
      }
      if (part(context, "deduplicationMode").toString().equals("NET_CHANGES")) {
        throw new JobRefused("the changes of " + table.name() + " are shown as they were made: leave out netChanges").inAnalysis();
      }
      long first = version(table, (String) part(range, "startingVersion"));
      Optional<?> last = (Optional<?>) part(range, "endingVersion");
      LogicalPlan rows =
          rows(
              table,
              Boolean.TRUE.equals(part(range, "startingBoundInclusive")) ? first : first + 1,
              last.isEmpty()
                  ? null
                  : version(table, (String) last.get()) - (Boolean.TRUE.equals(part(range, "endingBoundInclusive")) ? 0 : 1));
      List<String> name = new ArrayList<>(PenstockCatalog.names(table.ident()));
      name.add(0, table.catalog().name());
      return SubqueryAlias$.MODULE$.apply(CollectionConverters.asScala(name).toSeq(), rows);
    } catch (ReflectiveOperationException another) {
      return null; // of a Spark that is not known yet: Spark says that there are no changes
    }
  }

  private static Object part(Object whole, String name) throws ReflectiveOperationException {
    return whole.getClass().getMethod(name).invoke(whole);
  }

  private static long version(LakeTable table, String text) {
    try {
      return Long.parseLong(text);
    } catch (NumberFormatException none) {
      throw new JobRefused("'" + text + "' is no version of " + table.name() + ": versions are whole numbers").inAnalysis();
    }
  }

  private LogicalPlan rows(LakeTable table, long first, Long last) {
    Map<String, Object> request = new HashMap<>();
    request.put("table", table.facts());
    request.put("first_version", first);
    request.put("last_version", last);
    Object rows = table.catalog().act(session, "changes", request, List.of());
    return ((org.apache.spark.sql.classic.Dataset<?>) rows).queryExecution().analyzed();
  }
}
