package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.InsertAction;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.InsertStarAction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias$;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateStarAction;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Tables that get columns of the rows which a statement writes to them: INSERT and MERGE WITH SCHEMA EVOLUTION, and
 * writers with the option mergeSchema.
 *
 * <p>Spark is shown the table with the columns that it is to have, before it looks which columns the rows go to. The
 * table is changed by who writes the rows, in the same commit. Spark's own way has the catalogue alter the table while
 * the statement is analysed, also if it is only explained, and it proposes narrower types of columns, too.
 */
final class WidenedTables extends Rule<LogicalPlan> {
  private static final String FLAG = "withSchemaEvolution";
  private static final String OPTION = "mergeSchema";

  private final org.apache.spark.sql.classic.SparkSession session;

  WidenedTables(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    try {
      if (plan instanceof MergeIntoTable merge && merge.withSchemaEvolution()) {
        return widened(merge);
      }
      if (plan instanceof InsertIntoStatement insert && isMeant(insert, insert.table(), Map.of())) {
        return widened(insert);
      }
      if (plan instanceof V2WriteCommand write && isMeant(plan, (LogicalPlan) write.table(), options(write))) {
        return widened(write);
      }
      return plan;
    } catch (ReflectiveOperationException another) {
      return plan; // of a Spark that is not known yet: it is refused below
    }
  }

  /** Whether a statement or the options of a writer ask for new columns. */
  private static boolean isMeant(LogicalPlan plan, LogicalPlan table, Map<String, String> options) {
    return Boolean.TRUE.equals(Copies.part(plan, FLAG))
        || isOn(options)
        || table instanceof UnresolvedRelation named && isOn(named.options())
        || table instanceof DataSourceV2Relation known && isOn(known.options());
  }

  private static boolean isOn(Map<String, String> options) {
    return options.entrySet().stream()
        .anyMatch(one -> one.getKey().equalsIgnoreCase(OPTION) && one.getValue().equalsIgnoreCase("true"));
  }

  private static Map<String, String> options(V2WriteCommand write) {
    return Copies.part((LogicalPlan) write, "writeOptions") instanceof scala.collection.immutable.Map<?, ?> given
        ? asTexts(given)
        : Map.of();
  }

  @SuppressWarnings("unchecked") // as Spark declares it
  private static Map<String, String> asTexts(scala.collection.immutable.Map<?, ?> given) {
    return CollectionConverters.asJava((scala.collection.immutable.Map<String, String>) given);
  }

  // -- statements -------------------------------------------------------------------------------------------------

  private LogicalPlan widened(InsertIntoStatement insert) throws ReflectiveOperationException {
    LakeTable table = find(insert.table());
    LogicalPlan rows = table == null ? null : analysed(insert.query());
    if (rows == null) {
      return insert;
    }
    List<String> columns = CollectionConverters.asJava(insert.userSpecifiedCols());
    StructType added = rows.schema();
    if (!columns.isEmpty()) {
      added = named(added, columns);
    } else if (!insert.byName()) {
      int given = (int) CollectionConverters.asJava(insert.partitionSpec()).values().stream().filter(Option::isDefined).count();
      added = after(added, table.columns().length - given);
    }
    InsertIntoStatement known = Copies.with(insert, "table", relation(widened(table, added)));
    return withoutFlag(Copies.with(known, "query", rows));
  }

  private LogicalPlan widened(V2WriteCommand write) throws ReflectiveOperationException {
    LakeTable table = find((LogicalPlan) write.table());
    LogicalPlan rows = table == null ? null : analysed(write.query());
    if (rows == null) {
      return (LogicalPlan) write;
    }
    StructType added = write.isByName() ? rows.schema() : after(rows.schema(), table.columns().length);
    return withoutFlag((LogicalPlan) write.withNewTable(relation(widened(table, added))).withNewQuery(rows));
  }

  private LogicalPlan widened(MergeIntoTable merge) throws ReflectiveOperationException {
    LakeTable table = find(merge.targetTable());
    LogicalPlan rows = table == null ? null : analysed(merge.sourceTable());
    if (rows == null) {
      return merge;
    }
    LakeTable wider = widened(table, taken(merge, rows.schema()));
    List<String> name = new ArrayList<>(PenstockCatalog.names(table.ident()));
    name.add(0, table.catalog().name());
    LogicalPlan target = SubqueryAlias$.MODULE$.apply(seq(name), relation(wider));
    if (merge.targetTable() instanceof SubqueryAlias alias) {
      target = alias.withNewChildren(seq(List.of(target)));
    }
    MergeIntoTable known = Copies.with(Copies.with(merge, "targetTable", target), "sourceTable", rows);
    known = Copies.with(known, "matchedActions", actions(merge.matchedActions(), rows));
    known = Copies.with(known, "notMatchedActions", actions(merge.notMatchedActions(), rows));
    return withoutFlag(known);
  }

  private static <T extends LogicalPlan> LogicalPlan withoutFlag(T plan) throws ReflectiveOperationException {
    return Copies.part(plan, FLAG) == null ? plan : Copies.with(plan, FLAG, false);
  }

  /** Of the source, the columns that clauses take: all of them, or those that they name. */
  private static StructType taken(MergeIntoTable merge, StructType source) {
    Set<String> names = new HashSet<>();
    for (Seq<MergeAction> actions : List.of(merge.matchedActions(), merge.notMatchedActions())) {
      for (MergeAction one : CollectionConverters.asJava(actions)) {
        if (one instanceof UpdateStarAction || one instanceof InsertStarAction) {
          return source;
        }
        Seq<Assignment> assignments =
            one instanceof UpdateAction update
                ? update.assignments()
                : one instanceof InsertAction insert ? insert.assignments() : seq(List.of());
        CollectionConverters.asJava(assignments).forEach(set -> names.add(lastName(set.key())));
      }
    }
    List<StructField> fields = new ArrayList<>();
    for (StructField one : source.fields()) {
      if (names.contains(one.name().toLowerCase(Locale.ROOT))) {
        fields.add(one);
      }
    }
    return new StructType(fields.toArray(new StructField[0]));
  }

  /** The name of a column that is given a value, which may stand behind that of the table. */
  private static String lastName(Expression key) {
    return key instanceof UnresolvedAttribute name ? name.nameParts().last().toLowerCase(Locale.ROOT) : "";
  }

  /** Clauses in which a star stands for the columns that the source has: others stay as they are. */
  private static Seq<MergeAction> actions(Seq<MergeAction> given, LogicalPlan source) {
    List<MergeAction> found = new ArrayList<>();
    for (MergeAction one : CollectionConverters.asJava(given)) {
      if (one instanceof UpdateStarAction star) {
        found.add(new UpdateAction(star.condition(), assignments(source), true));
      } else if (one instanceof InsertStarAction star) {
        found.add(new InsertAction(star.condition(), assignments(source)));
      } else {
        found.add(one);
      }
    }
    return seq(found);
  }

  private static Seq<Assignment> assignments(LogicalPlan source) {
    List<Assignment> found = new ArrayList<>();
    for (Attribute one : CollectionConverters.asJava(source.output())) {
      found.add(new Assignment(new UnresolvedAttribute(seq(List.of(one.name()))), one));
    }
    return seq(found);
  }

  // -- rows and tables --------------------------------------------------------------------------------------------

  /** The rows that a statement writes, with their columns; null if Spark has to say what is wrong with them. */
  private LogicalPlan analysed(LogicalPlan query) {
    LogicalPlan found =
        query.resolved() ? query : MappedReads.withSamePins(() -> session.sessionState().analyzer().execute(query));
    return found.resolved() ? found : null;
  }

  private static StructType named(StructType columns, List<String> names) {
    StructField[] fields = columns.fields();
    for (int at = 0; at < fields.length && at < names.size(); at++) {
      fields[at] = new StructField(names.get(at), fields[at].dataType(), fields[at].nullable(), fields[at].metadata());
    }
    return new StructType(fields);
  }

  private static StructType after(StructType columns, int count) {
    List<StructField> fields = List.of(columns.fields());
    return new StructType(fields.subList(Math.min(count, fields.size()), fields.size()).toArray(new StructField[0]));
  }

  /** The table of a lake that a statement names; null if it is none, or has the columns already. */
  private LakeTable find(LogicalPlan named) {
    LogicalPlan plan = named instanceof SubqueryAlias alias ? alias.child() : named;
    if (plan instanceof DataSourceV2Relation relation) {
      return relation.table() instanceof LakeTable table && !table.isWidened() ? table : null;
    }
    if (!(plan instanceof UnresolvedRelation relation)) {
      return null;
    }
    return CatalogNames.find(session, CollectionConverters.asJava(relation.multipartIdentifier()));
  }

  private LakeTable widened(LakeTable table, StructType columns) {
    PenstockCatalog catalog = table.catalog();
    Map<String, Object> request = Map.of("table", table.facts(), "schema", columns.json());
    JsonNode facts = (JsonNode) catalog.act(session, "widen", request, List.of());
    return new LakeTable(catalog, table.ident(), facts, true);
  }

  private static DataSourceV2Relation relation(LakeTable table) {
    return DataSourceV2Relation$.MODULE$.create(table, Option.apply(table.catalog()), Option.apply(table.ident()));
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
