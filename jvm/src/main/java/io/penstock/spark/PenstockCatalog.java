package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A lake as a catalogue of Spark's SQL: {@code spark.sql.catalog.<name> = io.penstock.spark.PenstockCatalog}. Where Spark
 * lets catalogues have views, {@link PenstockRelationCatalog} has them, too.
 *
 * <p>It decides nothing: names and changes go to who decides ({@link JobDriver}). What it remembers is the session's
 * reference and its transaction, which go along with every question.
 */
public class PenstockCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog, FunctionCatalog {
  /** The setting of a session that names a branch, a tag or any other revision for all names without one. */
  static final String REF = "spark.penstock.ref";
  /** The option that names a Python with Penstock, for a driver that has none. */
  static final String PYTHON = "python";
  /** The namespace of the procedures. */
  static final String SYSTEM = "system";

  private String name;
  private volatile org.apache.spark.sql.classic.SparkSession session;
  private final ThreadLocal<Namespace> lastNamespace = new ThreadLocal<>();
  private volatile String used = "";
  private volatile String transaction = "";
  private volatile Absent absent;

  /** Made by Spark. */
  public PenstockCatalog() {}

  @Override
  public void initialize(String catalogName, CaseInsensitiveStringMap options) {
    name = catalogName; // the options may be of another session, and are read when they are needed
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return Set.of(
        TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE,
        TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS,
        TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_IDENTITY_COLUMNS);
  }

  /** What names without a revision are looked up at; empty for the default branch. */
  String ref() {
    if (!transaction.isEmpty()) {
      return transaction;
    }
    return used.isEmpty() ? setting(REF, option("ref")) : used;
  }

  /** The session that this catalogue is of. */
  org.apache.spark.sql.classic.SparkSession session() {
    if (session == null) {
      session = CatalogSessions.of(this);
    }
    return session == null ? (org.apache.spark.sql.classic.SparkSession) SparkSession.active() : session;
  }

  private String setting(String key, String otherwise) {
    return session().sessionState().conf().getConfString(key, otherwise);
  }

  private String option(String key) {
    return setting(optionName(key), "");
  }

  /** What names the lake: two catalogues of a session may be of one lake, or of two. */
  String lake() {
    String address = option("lake");
    return address.isEmpty() ? setting(JobDrivers.LAKE_ID, setting(JobDrivers.LAKE, "")) : address;
  }

  private String optionName(String key) {
    return "spark.sql.catalog." + name + "." + key;
  }

  /**
   * Who decides: on the lake that the catalogue's option names, or else on that of the session. Where that is a server and
   * an option names a Python, it is a process of that Python, which asks the server.
   */
  JobDriver driver() {
    String address = option("lake");
    String token = option("token");
    try {
      JobDriver decider =
          address.isEmpty()
              ? JobDrivers.of(setting(JobDrivers.LAKE_ID, ""), setting(JobDrivers.LAKE, ""), token)
              : JobDrivers.of("", address, token);
      String python = option(PYTHON);
      return python.isEmpty() || decider instanceof PlanDriver
          ? decider
          : new AttachedPython(
              python, optionName(PYTHON), address.isEmpty() ? setting(JobDrivers.LAKE, "") : address, token);
    } catch (JobRefused refused) {
      throw refused.inAnalysis();
    }
  }

  /** Whether there is Python, which makes and runs plans of Spark's. */
  boolean hasPython() {
    return driver() instanceof PlanDriver;
  }

  /** Ask who decides. The reference and the transaction go along. */
  JsonNode ask(String step, Map<String, Object> request) {
    JobDriver decider = driver();
    try {
      return asked(decider, step, request);
    } catch (JobRefused refused) {
      throw shown(decider, refused);
    }
  }

  /** An error as the program shows it best that asked: PySpark, or another one. */
  private static RuntimeException shown(JobDriver decider, JobRefused refused) {
    return decider instanceof PlanDriver && !(decider instanceof AttachedPython) ? refused : refused.inAnalysis();
  }

  private JsonNode asked(JobDriver decider, String step, Map<String, Object> request) {
    JsonNode answer = JobDrivers.question(decider, session(), step, withState(request));
    // Statements such as USE REFERENCE and COMMIT change what later ones are about.
    used = answer.path("used").asText(used);
    transaction = answer.path("transaction").asText(transaction);
    return JobDrivers.checked(answer);
  }

  /** Have a step of a statement done by the driver's Python process, in the session that asks; returns a DataFrame, or JSON. */
  Object act(SparkSession asking, String step, Map<String, Object> request, List<Object> parts) {
    JobDriver decider = driver();
    try {
      return JobDrivers.act(decider, asking, step, withState(request), parts);
    } catch (JobRefused refused) {
      throw shown(decider, refused);
    }
  }

  /** A request together with what this catalogue remembers. */
  Map<String, Object> withState(Map<String, Object> request) {
    Map<String, Object> whole = new HashMap<>(request);
    whole.put("catalog", name);
    whole.put("ref", ref());
    whole.put("transaction", transaction);
    SQLConf settings = session().sessionState().conf();
    whole.put("zone", settings.sessionLocalTimeZone());
    whole.put("infers", settings.partitionColumnTypeInferenceEnabled());
    whole.put("has_local_times", settings.timestampType() instanceof TimestampNTZType);
    whole.put("is_case_sensitive", settings.caseSensitiveAnalysis());
    whole.put("user", session().sparkContext().sparkUser());
    // What it changes is changed once, however often the request has to be sent.
    whole.put("statement", UUID.randomUUID().toString().replace("-", ""));
    return whole;
  }

  // -- tables -----------------------------------------------------------------------------------------------------

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return identifiers(namespace, listed(namespace).path("tables"));
  }

  /** The names of tables and of views in a namespace. */
  JsonNode listed(String[] namespace) throws NoSuchNamespaceException {
    JsonNode answer = ask("tables", Map.of("names", namespace));
    if (answer.path("is_absent").asBoolean()) {
      throw new NoSuchNamespaceException(namespace);
    }
    return answer;
  }

  static Identifier[] identifiers(String[] namespace, JsonNode names) {
    List<Identifier> found = new ArrayList<>();
    names.forEach(one -> found.add(Identifier.of(namespace, one.asText())));
    return found.toArray(new Identifier[0]);
  }

  @Override
  public Table loadTable(Identifier ident) throws NoSuchTableException {
    return load(ident, Map.of());
  }

  @Override
  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    return load(ident, Map.of("revision", version));
  }

  @Override
  public Table loadTable(Identifier ident, long timestamp) throws NoSuchTableException {
    return load(ident, Map.of("time_us", timestamp));
  }

  private Table load(Identifier ident, Map<String, Object> travel) throws NoSuchTableException {
    JsonNode answer = find(ident, travel);
    if (answer.hasNonNull("view")) {
      throw refuseView(ident);
    }
    return new LakeTable(this, ident, answer);
  }

  /** What is said of a view where a table is asked for. */
  NoSuchTableException refuseView(Identifier ident) {
    throw ViewStatements.refusal(this, "'" + String.join(".", names(ident)) + "' is a view").inAnalysis();
  }

  /** Whether statements may make and read views. */
  boolean hasViews() {
    return false;
  }

  /** What a name stands for: a table or a view. */
  JsonNode find(Identifier ident, Map<String, Object> travel) throws NoSuchTableException {
    // All that one query reads of a branch is of one commit. Outside of a query there is nothing to agree with.
    Map<String, JsonNode> pinned =
        QueryPlanningTracker$.MODULE$.get().isDefined() ? MappedReads.pinned() : new HashMap<>();
    Map<String, Object> request = new HashMap<>(travel);
    request.put("names", names(ident));
    request.put("pinned", pinned);
    JsonNode answer = ask("table", request);
    if (answer.path("is_absent").asBoolean()) {
      absent = new Absent(ident, travel);
      throw new NoSuchTableException(ident);
    }
    pinned.put(answer.path("pin_name").asText(), answer.path("pin"));
    return answer;
  }

  /** Refuse a name that stands for no table, with the name that was probably meant. Does nothing if it is there now. */
  JsonNode refuseIfAbsent(Identifier ident) {
    Absent last = absent;
    Map<String, Object> request = new HashMap<>(last != null && last.ident.equals(ident) ? last.travel : Map.of());
    request.put("names", names(ident));
    request.put("must_exist", true);
    JobDriver decider = driver();
    try {
      return asked(decider, "table", request);
    } catch (JobRefused refused) {
      throw refused.ofMissingTable();
    }
  }

  /** A name that stood for no table, and the revision at which it was looked up. */
  private record Absent(Identifier ident, Map<String, Object> travel) {}

  @Override
  public void invalidateTable(Identifier ident) {
    // Nothing is kept.
  }

  @Override
  public Table createTable(Identifier ident, TableInfo wanted)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    create(ident, wanted, Map.of());
    try {
      return loadTable(ident);
    } catch (NoSuchTableException gone) {
      throw new JobRefused("the table '" + ident + "' was created, and dropped by somebody else since");
    }
  }

  @Override
  public StagedTable stageCreate(Identifier ident, TableInfo wanted) {
    return new NewTable(ident, wanted, Map.of());
  }

  /** REPLACE TABLE: what is there stays until the other table is, and Spark drops nothing before. */
  @Override
  public StagedTable stageReplace(Identifier ident, TableInfo wanted) {
    return new NewTable(ident, wanted, Map.of("is_replace", true, "create", false));
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier ident, TableInfo wanted) {
    return new NewTable(ident, wanted, Map.of("is_replace", true, "create", true));
  }

  /** A table without rows that a statement is to make. */
  private final class NewTable implements StagedTable {
    private final Identifier ident;
    private final TableInfo wanted;
    private final Map<String, Object> how;

    NewTable(Identifier ident, TableInfo wanted, Map<String, Object> how) {
      this.ident = ident;
      this.wanted = wanted;
      this.how = how;
    }

    @Override
    public void commitStagedChanges() {
      try {
        create(ident, wanted, how);
      } catch (TableAlreadyExistsException there) {
        throw new JobRefused("the table '" + ident + "' was created by somebody else meanwhile: run the statement again");
      }
    }

    @Override
    public void abortStagedChanges() {
      // Nothing was done.
    }

    @Override
    public String name() {
      return ident.toString();
    }

    @Override
    public Column[] columns() {
      return wanted.columns();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of();
    }
  }

  private void create(Identifier ident, TableInfo wanted, Map<String, Object> how) throws TableAlreadyExistsException {
    Map<String, Object> request = new HashMap<>(how);
    request.put("names", names(ident));
    request.put("schema", CatalogV2Util.v2ColumnsToStructType(wanted.columns()).json());
    request.put("partitioning", texts(wanted.partitions()));
    request.put("properties", wanted.properties());
    request.put("column_values", Stream.of(wanted.columns()).map(PenstockCatalog::values).flatMap(List::stream).toList());
    request.put("constraints", Stream.of(wanted.constraints()).map(Constraint::toDDL).toList());
    JsonNode answer = ask("create", request);
    if (answer.path("is_there").asBoolean()) {
      throw new TableAlreadyExistsException(ident);
    }
    if (answer.has("write")) {
      ServerWrite.runEmpty(this, answer.get("write"), CatalogV2Util.v2ColumnsToStructType(wanted.columns()));
    }
  }

  /** CREATE TABLE … LIKE, which newer releases of Spark ask for: a table with the same columns, and of the same format. */
  public Table createTableLike(Identifier ident, TableInfo wanted, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (wanted.properties().containsKey(TableCatalog.PROP_PROVIDER) || !(source instanceof LakeTable like)) {
      return createTable(ident, wanted);
    }
    Map<String, String> properties = new HashMap<>(wanted.properties());
    properties.put(TableCatalog.PROP_PROVIDER, like.properties().get(TableCatalog.PROP_PROVIDER));
    TableInfo same =
        new TableInfo.Builder()
            .withColumns(wanted.columns())
            .withPartitions(wanted.partitions())
            .withConstraints(wanted.constraints())
            .withProperties(properties)
            .build();
    return createTable(ident, same);
  }

  /** What a statement says of the values of a column; nothing if it says nothing. */
  private static List<Map<String, Object>> values(Column column) {
    Map<String, Object> told = new HashMap<>();
    if (column.defaultValue() != null) {
      told.put("default", column.defaultValue().getSql());
    }
    if (column.generationExpression() != null) {
      told.put("generated", column.generationExpression());
    }
    if (column.identityColumnSpec() != null) {
      var spec = column.identityColumnSpec();
      told.put(
          "identity",
          Map.of(
              "start", spec.getStart(), "step", spec.getStep(), "allows_explicit", spec.isAllowExplicitInsert()));
    }
    if (told.isEmpty()) {
      return List.of();
    }
    told.put("name", column.name());
    return List.of(told);
  }

  @Override
  public Table alterTable(Identifier ident, TableChange... changes) throws NoSuchTableException {
    LakeTable table = (LakeTable) loadTable(ident);
    List<Map<String, Object>> told = new ArrayList<>();
    for (TableChange change : changes) {
      told.add(TableChanges.told(change));
    }
    try {
      ask("alter", Map.of("names", names(ident), "changes", told));
    } catch (JobRefused refused) {
      throw refused.unsupported(); // Spark would wrap an error of the other class, and show a trace
    }
    return loadTable(table.ident());
  }

  @Override
  public boolean dropTable(Identifier ident) {
    return ask("drop", Map.of("names", names(ident))).path("is_done").asBoolean();
  }

  @Override
  public void renameTable(Identifier before, Identifier after) throws NoSuchTableException, TableAlreadyExistsException {
    JsonNode answer = ask("rename", Map.of("names", names(before), "to", names(after)));
    if (answer.path("is_absent").asBoolean()) {
      throw new NoSuchTableException(before);
    }
    if (answer.path("is_there").asBoolean()) {
      throw new TableAlreadyExistsException(after);
    }
  }

  static List<String> names(Identifier ident) {
    List<String> all = new ArrayList<>(List.of(ident.namespace()));
    all.add(ident.name());
    return all;
  }

  static List<String> texts(Transform[] partitions) {
    List<String> found = new ArrayList<>();
    for (Transform one : partitions) {
      // A plain column is told by its name, anything else as Spark describes it: days(ts), cluster_by(a).
      boolean isPlain = one.name().equals("identity") && one.references()[0].fieldNames().length == 1;
      found.add(isPlain ? one.references()[0].fieldNames()[0] : one.describe());
    }
    return found;
  }

  // -- namespaces -------------------------------------------------------------------------------------------------

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    JsonNode answer = ask("namespaces", Map.of("names", namespace));
    if (answer.path("is_absent").asBoolean()) {
      throw new NoSuchNamespaceException(namespace);
    }
    List<String[]> found = new ArrayList<>();
    for (JsonNode one : answer.path("namespaces")) {
      List<String> names = new ArrayList<>(List.of(namespace));
      names.add(one.asText());
      found.add(names.toArray(new String[0]));
    }
    return found.toArray(new String[0][]);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    JsonNode answer = namespace(List.of(namespace));
    if (answer.path("is_absent").asBoolean()) {
      throw new NoSuchNamespaceException(namespace);
    }
    return texts(answer.path("properties"));
  }

  /** What is known of a namespace. Rules of Spark's analysis ask many times for each query: it is answered once. */
  private JsonNode namespace(List<String> names) {
    if (!QueryPlanningTracker$.MODULE$.get().isDefined()) {
      return ask("namespace", Map.of("names", names));
    }
    Object query = AnalysisContext.get().relationCache(); // one for each, as for its commits (MappedReads)
    List<Object> place = List.of(ref(), names);
    Namespace known = lastNamespace.get();
    if (known == null || known.query.get() != query || !known.place.equals(place)) {
      known = new Namespace(new WeakReference<>(query), place, ask("namespace", Map.of("names", names)));
      lastNamespace.set(known);
    }
    return known.answer;
  }

  private record Namespace(WeakReference<Object> query, List<Object> place, JsonNode answer) {}

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) throws NamespaceAlreadyExistsException {
    if (ask("create_namespace", Map.of("names", namespace, "properties", metadata)).path("is_there").asBoolean()) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) throws NoSuchNamespaceException {
    Map<String, String> properties = new HashMap<>();
    for (NamespaceChange one : changes) {
      if (one instanceof NamespaceChange.SetProperty set) {
        properties.put(set.property(), set.value());
      } else if (one instanceof NamespaceChange.RemoveProperty removed) {
        properties.put(removed.property(), null);
      }
    }
    if (ask("alter_namespace", Map.of("names", namespace, "properties", properties)).path("is_absent").asBoolean()) {
      throw new NoSuchNamespaceException(namespace);
    }
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    JsonNode answer = ask("drop_namespace", Map.of("names", namespace, "cascade", cascade));
    if (answer.path("is_absent").asBoolean()) {
      throw new NoSuchNamespaceException(namespace);
    }
    if (answer.path("is_filled").asBoolean()) {
      throw new NonEmptyNamespaceException(namespace);
    }
    return answer.path("is_done").asBoolean();
  }

  static Map<String, String> texts(JsonNode object) {
    Map<String, String> found = new HashMap<>();
    object.properties().forEach(one -> found.put(one.getKey(), one.getValue().asText()));
    return found;
  }

  // -- functions: a lake has none, which is no reason to look for others in vain -------------------------------------

  @Override
  public Identifier[] listFunctions(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  public UnboundFunction loadFunction(Identifier ident) throws NoSuchFunctionException {
    throw new NoSuchFunctionException(ident);
  }

  // -- procedures -------------------------------------------------------------------------------------------------

  @Override
  public UnboundProcedure loadProcedure(Identifier ident) {
    try {
      JsonNode facts = ask("procedure", Map.of("procedure", String.join(".", names(ident))));
      return new LakeProcedure(this, ident.name(), facts);
    } catch (JobRefused refused) {
      throw refused.inAnalysis(); // of other errors Spark says no more than that the procedure cannot be loaded
    }
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    List<Identifier> found = new ArrayList<>();
    ask("procedures", Map.of()).path("procedures").forEach(one -> found.add(Identifier.of(new String[] {SYSTEM}, one.asText())));
    return found.toArray(new Identifier[0]);
  }
}
