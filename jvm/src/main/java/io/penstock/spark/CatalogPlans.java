package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NamedRelation;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.AddCheckConstraint;
import org.apache.spark.sql.catalyst.plans.logical.AddConstraint;
import org.apache.spark.sql.catalyst.plans.logical.AnalysisHelper$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.DeleteAction;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.InsertAction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.plans.logical.UncacheTable;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.streaming.WriteToStream;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.command.ExternalCommandExecutor;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Plans of statements about a catalogue's tables, once Spark has analysed them: a read becomes the plan that
 * penstock.spark.read makes, and a statement that changes rows a command that penstock.spark carries out.
 *
 * <p>So there is one engine for reads and one for changes, whoever asks, and Spark keeps no relation by its name:
 * what it keeps that way it would show at other revisions, too.
 */
final class CatalogPlans extends Rule<LogicalPlan> {
  private static final scala.collection.immutable.Map<String, String> NO_OPTIONS =
      scala.collection.immutable.Map$.MODULE$.empty();

  private final org.apache.spark.sql.classic.SparkSession session;

  CatalogPlans(SparkSession session) {
    this.session = (org.apache.spark.sql.classic.SparkSession) session;
    CatalogSessions.add(this.session);
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (plan instanceof AppendData append && tableOf(append.table()) != null) {
      return append.resolved()
          ? write(append.table(), append.query(), Map.of("mode", "append"), append.writeOptions())
          : plan;
    }
    if (plan instanceof OverwriteByExpression over && tableOf(over.table()) != null) {
      return over.resolved()
          ? write(over.table(), over.query(), overwrite(over.deleteExpr()), over.writeOptions())
          : plan;
    }
    if (plan instanceof OverwritePartitionsDynamic over && tableOf(over.table()) != null) {
      Map<String, Object> how = Map.of("mode", "overwrite", "dynamic", true);
      return over.resolved() ? write(over.table(), over.query(), how, over.writeOptions()) : plan;
    }
    if (plan instanceof CreateTableAsSelect create && catalogOf(create.name()) != null) {
      String mode = create.ignoreIfExists() ? "ignore" : "error";
      return isReady(create.query(), create.tableSpec())
          ? create(
              create.name(), create.query(), create.partitioning(), create.tableSpec(),
              Map.of("mode", mode, "is_text", isNamed(plan, create.name()), "options", options(create.writeOptions())))
          : plan;
    }
    if (plan instanceof ReplaceTableAsSelect replace && catalogOf(replace.name()) != null) {
      Map<String, Object> how =
          Map.of(
              "mode", "overwrite",
              "is_replace", true,
              "create", replace.orCreate(),
              "is_text", isNamed(plan, replace.name()),
              "options", options(replace.writeOptions()));
      return isReady(replace.query(), replace.tableSpec())
          ? create(replace.name(), replace.query(), replace.partitioning(), replace.tableSpec(), how)
          : plan;
    }
    if (plan instanceof DeleteFromTable delete && tableOf(delete.table()) != null) {
      return delete.resolved() ? delete(delete) : plan;
    }
    if (plan instanceof UpdateTable update && tableOf(update.table()) != null) {
      return update.resolved() ? update(update) : plan;
    }
    if (plan instanceof MergeIntoTable merge && tableOf(merge.targetTable()) != null) {
      return merge.resolved() ? merge(merge) : plan;
    }
    if (plan instanceof WriteToStream stream && stream.sink() instanceof LakeTable table) {
      return StreamBatches.replacing(stream, table);
    }
    if (plan instanceof CreateTable create && catalogOf(create.name()) != null) {
      return isText(plan, create.name()) ? plan : withoutUsualProvider(create);
    }
    if (plan instanceof Union all
        && CollectionConverters.asJava(all.children()).stream()
            .anyMatch(one -> one instanceof V2WriteCommand write && tableOf(write.table()) != null)) {
      throw new JobRefused(
              "one statement with several INSERTs cannot write to a table of a lake, where every statement is one"
                  + " commit: write an INSERT for each, between BEGIN TRANSACTION and COMMIT to have them land together")
          .inAnalysis();
    }
    if (plan instanceof UncacheTable uncached) {
      return uncache(uncached);
    }
    if (plan instanceof AddConstraint added && isResolved(added.table())
        || plan instanceof AddCheckConstraint check && hasTable(check.child())) {
      throw new JobRefused(
              "a constraint of a Delta table is a property of it, which is set by ALTER TABLE … SET TBLPROPERTIES"
                  + " ('delta.constraints.<name>' = '<condition>')")
          .inAnalysis();
    }
    // What is refreshed is looked up only. Spark tells the catalogue then, and finds no table in the plan of its rows.
    return hasTable(plan) && Callers.isRefreshTable() ? plan : readsIn(plan);
  }

  // -- reads ------------------------------------------------------------------------------------------------------

  private LogicalPlan readsIn(LogicalPlan plan) {
    return AnalysisHelper$.MODULE$.allowInvokingTransformsInAnalyzer(
        () -> plan.transformDownWithSubqueries(new Reads()));
  }

  /** From the top down, so that what filters a table right above it is known when the table is read. */
  private final class Reads extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override
    public boolean isDefinedAt(LogicalPlan node) {
      return node instanceof Filter filter
          ? tableOf(filter.child()) != null
          : isTable(node) || node instanceof StreamingRelationV2 stream && stream.table() instanceof LakeTable;
    }

    @Override
    public <A extends LogicalPlan, B> B applyOrElse(A node, Function1<A, B> otherwise) {
      LogicalPlan found = node;
      if (!isDefinedAt(found)) {
        return otherwise.apply(node);
      }
      @SuppressWarnings("unchecked")
      B result = (B) replaced(found);
      return result;
    }

    private LogicalPlan replaced(LogicalPlan found) {
      if (found instanceof StreamingRelationV2 stream) {
        return follow(stream);
      }
      return found instanceof Filter filter
          ? filter.withNewChildren(seq(List.of(read(filter.child(), Conditions.text(filter.condition())))))
          : read(found, null);
    }
  }

  private LogicalPlan read(LogicalPlan named, String where) {
    return named instanceof SubqueryAlias alias
        ? alias.withNewChildren(seq(List.of(read(alias.child(), where))))
        : read((DataSourceV2Relation) named, where);
  }

  /** The rows of a table, under the ids by which the rest of the plan knows its columns. */
  private LogicalPlan read(DataSourceV2Relation relation, String where) {
    LakeTable table = (LakeTable) relation.table();
    LogicalPlan rows = table.catalog().hasPython() ? readByPython(table, where) : table.plan(where);
    LogicalPlan plan = shown(table, rows, relation.output());
    StatementReads.mark(plan, table, where);
    return plan;
  }

  /** The rows of a table as a stream, which Python makes as penstock.spark.stream does. */
  private LogicalPlan follow(StreamingRelationV2 relation) {
    LakeTable table = (LakeTable) relation.table();
    Map<String, Object> request = new HashMap<>();
    request.put("table", table.facts());
    request.put("options", relation.extraOptions().asCaseSensitiveMap());
    return shown(table, planned(table.catalog().act(session, "stream", request, List.of())), relation.output());
  }

  private static LogicalPlan planned(Object rows) {
    return ((org.apache.spark.sql.classic.Dataset<?>) rows).queryExecution().analyzed();
  }

  private static LogicalPlan shown(LakeTable table, LogicalPlan plan, Seq<AttributeReference> output) {
    List<Attribute> found = CollectionConverters.asJava(plan.output());
    List<NamedExpression> columns = new ArrayList<>();
    for (AttributeReference wanted : CollectionConverters.asJava(output)) {
      Attribute column =
          found.stream()
              .filter(one -> one.name().equals(wanted.name()))
              .findFirst()
              .orElseThrow(() -> new JobRefused(table.name() + " has no column '" + wanted.name() + "' any more"));
      columns.add(
          new Alias(
              column, wanted.name(), wanted.exprId(), seq(List.of()), Option.apply(wanted.metadata()), seq(List.of())));
    }
    return new Project(seq(columns), plan);
  }

  private LogicalPlan readByPython(LakeTable table, String where) {
    Map<String, Object> request = new HashMap<>();
    request.put("table", table.facts());
    request.put("where", where);
    Object answer = table.catalog().act(session, "plan", request, List.of());
    return answer instanceof JsonNode scan ? PlannedScan.plan(session, table.catalog().driver(), scan) : planned(answer);
  }

  // -- writes -----------------------------------------------------------------------------------------------------

  private static Map<String, Object> overwrite(Expression replaced) {
    Map<String, Object> how = new HashMap<>();
    how.put("mode", "overwrite");
    if (!(replaced instanceof Literal literal && Boolean.TRUE.equals(literal.value()))) {
      how.put("replace_where", unqualified(withPlainEquality(replaced)).sql());
    }
    return how;
  }

  /** Of values that are not null, the usual sign says the same: it is true for the same rows. */
  private static Expression withPlainEquality(Expression condition) {
    if (condition instanceof And both) {
      return new And(withPlainEquality(both.left()), withPlainEquality(both.right()));
    }
    if (condition instanceof EqualNullSafe same && same.right().foldable() && same.right().deterministic()) {
      Object value = same.right().eval(InternalRow.empty());
      return value == null ? condition : new EqualTo(same.left(), new Literal(value, same.right().dataType()));
    }
    return condition;
  }

  private LogicalPlan write(
      NamedRelation target,
      LogicalPlan query,
      Map<String, Object> how,
      scala.collection.immutable.Map<String, String> options) {
    LakeTable table = tableOf((LogicalPlan) target);
    Map<String, Object> request = new HashMap<>(how);
    request.put("table", table.facts());
    Map<String, String> given = options(options);
    if (table.isWidened()) {
      given.put("mergeSchema", "true");
    }
    request.put("options", given);
    return write(table.catalog(), request, readsIn(withoutComputed(table, query)));
  }

  /**
   * Rows without the columns that a statement leaves out and the table gives values to. Spark has a null for what a
   * statement leaves out.
   */
  private static LogicalPlan withoutComputed(LakeTable table, LogicalPlan query) {
    if (!(query instanceof Project project)) {
      return query;
    }
    List<NamedExpression> kept = new ArrayList<>();
    for (NamedExpression one : CollectionConverters.asJava(project.projectList())) {
      if (!(table.isComputed(one.name()) && one instanceof Alias alias && isNull(alias.child()))) {
        kept.add(one);
      }
    }
    return kept.size() == project.projectList().size() ? query : new Project(seq(kept), project.child());
  }

  private static boolean isNull(Expression value) {
    return value instanceof Literal literal ? literal.value() == null : value instanceof Cast cast && isNull(cast.child());
  }

  private static Map<String, String> options(scala.collection.immutable.Map<String, String> given) {
    return new HashMap<>(CollectionConverters.asJava(given));
  }

  private LogicalPlan create(
      LogicalPlan name, LogicalPlan query, Seq<Transform> partitioning, TableSpecBase spec, Map<String, Object> how) {
    PenstockCatalog catalog = catalogOf(name);
    Identifier ident = ((ResolvedIdentifier) name).identifier();
    Map<String, Object> request = new HashMap<>(how);
    request.put("names", PenstockCatalog.names(ident));
    request.put(
        "partitioning", PenstockCatalog.texts(CollectionConverters.asJava(partitioning).toArray(new Transform[0])));
    request.put("properties", CollectionConverters.asJava(spec.properties()));
    request.put("provider", spec.provider().isDefined() ? spec.provider().get() : null);
    request.put("location", spec.location().isDefined() ? spec.location().get() : null);
    request.put("comment", spec.comment().isDefined() ? spec.comment().get() : null);
    return write(catalog, request, readsIn(query));
  }

  private LogicalPlan write(PenstockCatalog catalog, Map<String, Object> request, LogicalPlan rows) {
    request.put("reads", StatementReads.of(catalog, rows));
    Supplier<String[]> work =
        () -> {
          if (catalog.hasPython()) {
            catalog.act(session, "write", request, List.of(frame(rows)));
          } else {
            ServerWrite.run(catalog, request, rows);
          }
          return new String[0];
        };
    return command(catalog, "write", request, work, () -> Map.of("mode", request.get("mode"), "rows", physical(rows)));
  }

  /** A table that a program creates and not a statement: Spark names its usual format if the program names none. */
  private LogicalPlan withoutUsualProvider(CreateTable create) {
    if (create.tableSpec() instanceof TableSpec spec
        && spec.provider().isDefined()
        && spec.provider().get().equalsIgnoreCase(session.sessionState().conf().defaultDataSourceName())) {
      try {
        return Copies.with(create, "tableSpec", Copies.with(spec, "provider", Option.empty()));
      } catch (ReflectiveOperationException another) {
        return create; // of a Spark that is not known yet: it is a table of files
      }
    }
    return create;
  }

  /**
   * Whether somebody wrote the statement, so that its format is what they said.
   *
   * @param name what it names: Spark may have made the plan anew since, and its parts tell where they are from
   */
  private static boolean isText(LogicalPlan plan, LogicalPlan name) {
    return plan.origin().sqlText().isDefined() || name.origin().sqlText().isDefined();
  }

  /** Whether the format is what the statement or the program said, rather than Spark's usual one. */
  private static boolean isNamed(LogicalPlan plan, LogicalPlan name) {
    return isText(plan, name) || Callers.isWriteTo();
  }

  private static boolean isReady(LogicalPlan query, TableSpecBase spec) {
    return query.resolved() && spec instanceof TableSpec;
  }

  // -- changes of rows --------------------------------------------------------------------------------------------

  private LogicalPlan delete(DeleteFromTable delete) {
    LakeTable table = tableOf(delete.table());
    Parts parts = new Parts(table);
    parts.request.put("condition", parts.add(delete.condition()));
    return command(table, "delete", parts);
  }

  private LogicalPlan update(UpdateTable update) {
    LakeTable table = tableOf(update.table());
    Parts parts = new Parts(table);
    parts.request.put("condition", parts.add(update.condition()));
    parts.request.put("values", parts.add(update.assignments()));
    return command(table, "update", parts);
  }

  private LogicalPlan merge(MergeIntoTable merge) {
    LakeTable table = tableOf(merge.targetTable());
    Parts parts = new Parts(table);
    parts.name(merge.targetTable(), "target");
    parts.name(merge.sourceTable(), "source");
    LogicalPlan rows = readsIn(merge.sourceTable());
    parts.request.put("on", parts.add(merge.mergeCondition()));
    List<Map<String, Object>> clauses = new ArrayList<>();
    merge.matchedActions().foreach(one -> clauses.add(clause("matched", one, parts)));
    merge.notMatchedActions().foreach(one -> clauses.add(clause("not matched", one, parts)));
    merge.notMatchedBySourceActions().foreach(one -> clauses.add(clause("not matched by source", one, parts)));
    parts.request.put("clauses", clauses);
    parts.request.put("source", parts.all.size());
    parts.reads.addAll(StatementReads.of(table.catalog(), rows));
    parts.request.put("merge_schema", table.isWidened());
    Supplier<String[]> work =
        () -> {
          List<Object> all = new ArrayList<>(parts.all);
          all.add(frame(rows));
          return RowChangeCommand.counts("merge", table.catalog().act(session, "merge", parts.request, all));
        };
    Supplier<Map<String, Object>> shown =
        () -> Map.of("on", parts.texts.get((int) parts.request.get("on")), "clauses", shown(clauses), "source", physical(rows));
    return command(table.catalog(), "merge", parts.request, work, shown);
  }

  private static Map<String, Object> clause(String kind, MergeAction action, Parts parts) {
    Map<String, Object> clause = new HashMap<>();
    clause.put("kind", kind);
    clause.put("condition", parts.add(action.condition()));
    if (action instanceof UpdateAction update) {
      clause.put("action", "update");
      clause.put("values", parts.add(update.assignments()));
    } else if (action instanceof InsertAction insert) {
      clause.put("action", "insert");
      clause.put("values", parts.add(insert.assignments()));
    } else if (action instanceof DeleteAction) {
      clause.put("action", "delete");
    } else {
      throw new JobRefused("MERGE INTO a table of a lake has no clause " + action.getClass().getSimpleName());
    }
    return clause;
  }

  /** Expressions of a statement, as columns that name what they read: ids mean nothing to another plan. */
  private static final class Parts {
    final Map<String, Object> request = new HashMap<>();
    final List<Object> all = new ArrayList<>();
    /** The same as SQL. */
    final List<String> texts = new ArrayList<>();
    /** What subqueries read, and other parts of the statement. */
    final List<Map<String, Object>> reads = new ArrayList<>();
    private final PenstockCatalog catalog;
    private final Map<ExprId, List<String>> names = new HashMap<>();

    Parts(LakeTable table) {
      catalog = table.catalog();
      request.put("table", table.facts());
      request.put("reads", reads);
    }

    void name(LogicalPlan plan, String qualifier) {
      for (Attribute one : CollectionConverters.asJava(plan.output())) {
        names.put(one.exprId(), List.of(qualifier, one.name()));
      }
    }

    /** Take an expression in; returns its place. */
    int add(Expression expression) {
      checkSubqueries(expression);
      reads.addAll(StatementReads.of(catalog, expression));
      Expression column = named(expression, names);
      all.add(ExpressionUtils$.MODULE$.column(column));
      texts.add(column.sql());
      return all.size() - 1;
    }

    /** A subquery that names columns of the rows outside of it cannot be part of another plan. */
    private static void checkSubqueries(Expression expression) {
      if (expression instanceof SubqueryExpression subquery && !subquery.getOuterAttrs().isEmpty()) {
        throw new JobRefused(
                "a subquery of UPDATE, DELETE and MERGE cannot name columns of the rows that are changed:"
                    + " use MERGE INTO … USING (SELECT …), whose ON condition names columns of both")
            .inAnalysis();
      }
      CollectionConverters.asJava(expression.children()).forEach(Parts::checkSubqueries);
    }

    Integer add(Option<Expression> expression) {
      return expression.isDefined() ? add(expression.get()) : null;
    }

    /** New values by the names of columns. */
    Map<String, Integer> add(Seq<Assignment> assignments) {
      Map<String, Integer> places = new HashMap<>();
      for (Assignment one : CollectionConverters.asJava(assignments)) {
        places.put(path(one.key()), add(one.value()));
      }
      return places;
    }

    private static String path(Expression key) {
      if (key instanceof GetStructField field) {
        return path(field.child()) + "." + quoted(field.extractFieldName());
      }
      if (key instanceof NamedExpression column) {
        return quoted(column.name());
      }
      throw new JobRefused("a column or a part of a struct can be given a value, and not " + key.sql());
    }

    private static String quoted(String name) {
      return name.matches("\\w+") ? name : "`" + name.replace("`", "``") + "`";
    }
  }

  private static Expression unqualified(Expression expression) {
    return named(expression, Map.of());
  }

  private static Expression named(Expression expression, Map<ExprId, List<String>> names) {
    return expression.transformUp(
        new AbstractPartialFunction<Expression, Expression>() {
          @Override
          public boolean isDefinedAt(Expression node) {
            return node instanceof AttributeReference;
          }

          @Override
          public <A extends Expression, B> B applyOrElse(A node, Function1<A, B> otherwise) {
            if ((Expression) node instanceof AttributeReference column) {
              List<String> name = names.getOrDefault(column.exprId(), List.of(column.name()));
              @SuppressWarnings("unchecked")
              B result = (B) new UnresolvedAttribute(seq(name));
              return result;
            }
            return otherwise.apply(node);
          }
        });
  }

  // -- what Spark keeps -------------------------------------------------------------------------------------------

  /** UNCACHE TABLE: what was cached of a table is of the commits that it was at then, and Spark looks for the present one. */
  private LogicalPlan uncache(UncacheTable uncached) {
    LogicalPlan rows = readsIn(uncached.table());
    List<String> origins = TableFiles.origins(rows);
    if (origins.isEmpty()) {
      return uncached;
    }
    return new ExternalCommandExecutor(
        new StatementRunner(
            "a table",
            () -> {
              CachedTables.release(session, rows, origins);
              return new String[0];
            }),
        "uncache",
        NO_OPTIONS);
  }

  // -- who carries it out -----------------------------------------------------------------------------------------

  private LogicalPlan command(LakeTable table, String step, Parts parts) {
    return command(
        table.catalog(),
        step,
        parts.request,
        () -> RowChangeCommand.counts(step, table.catalog().act(session, step, parts.request, parts.all)),
        () ->
            parts.request.get("condition") instanceof Integer place ? Map.of("condition", parts.texts.get(place)) : Map.of());
  }

  /** Where rows come from, for EXPLAIN. */
  private String physical(LogicalPlan rows) {
    return "\n" + ((org.apache.spark.sql.classic.Dataset<?>) frame(rows)).queryExecution().executedPlan();
  }

  private static String shown(List<Map<String, Object>> clauses) {
    return String.join(", ", clauses.stream().map(one -> one.get("kind") + " then " + one.get("action")).toList());
  }

  /** What is done when the command runs: an explained statement does nothing. */
  private static LogicalPlan command(
      PenstockCatalog catalog,
      String step,
      Map<String, Object> request,
      Supplier<String[]> work,
      Supplier<Map<String, Object>> shown) {
    List<String> name = new ArrayList<>(List.of(catalog.name()));
    if (request.get("table") instanceof JsonNode facts) {
      facts.path("key").forEach(one -> name.add(one.asText()));
    } else if (request.get("names") instanceof List<?> names) {
      names.forEach(one -> name.add(one.toString()));
    }
    Map<String, String> texts = new TreeMap<>();
    if (Callers.isExplain()) {
      shown.get().forEach((what, value) -> texts.put(what, value.toString()));
    }
    StatementRunner runner = new StatementRunner(String.join(".", name), work);
    scala.collection.immutable.Map<String, String> options =
        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(texts));
    return RowChangeCommand.isFor(step)
        ? new RowChangeCommand(runner, step, options)
        : new ExternalCommandExecutor(runner, step, options);
  }

  /** Carries out a statement. EXPLAIN shows the text of it. */
  private record StatementRunner(String table, Supplier<String[]> work) implements ExternalCommandRunner {
    @Override
    public String[] executeCommand(String command, CaseInsensitiveStringMap options) {
      return work.get();
    }

    @Override
    public String toString() {
      return table;
    }
  }

  private Dataset<?> frame(LogicalPlan plan) {
    return Dataset$.MODULE$.ofRows(session, plan);
  }

  private static boolean isTable(LogicalPlan plan) {
    return plan instanceof DataSourceV2Relation relation && relation.table() instanceof LakeTable;
  }

  private static LakeTable tableOf(Object plan) {
    Object node = plan;
    while (node instanceof SubqueryAlias alias) {
      node = alias.child();
    }
    return node instanceof DataSourceV2Relation relation && relation.table() instanceof LakeTable table ? table : null;
  }

  private static boolean hasTable(LogicalPlan plan) {
    return isTable(plan)
        || isResolved(plan)
        || CollectionConverters.asJava(plan.children()).stream().anyMatch(CatalogPlans::hasTable);
  }

  private static boolean isResolved(LogicalPlan plan) {
    return plan instanceof ResolvedTable named && named.table() instanceof LakeTable;
  }

  private static PenstockCatalog catalogOf(LogicalPlan name) {
    return name instanceof ResolvedIdentifier ident && ident.catalog() instanceof PenstockCatalog catalog ? catalog : null;
  }

  private static <T> Seq<T> seq(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
