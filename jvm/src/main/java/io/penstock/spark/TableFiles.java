package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MappingIterator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.GZIPInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The files of a table, as they were given: Spark lists nothing, and reads them as it reads any of their format.
 *
 * <p>Partition values are those that were given, whatever the directories are called that the files are in.
 */
public final class TableFiles extends PartitioningAwareFileIndex {
  private static final Logger LOG = LoggerFactory.getLogger(TableFiles.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  /** How many answers to filters are kept: one query asks several times for the same. */
  private static final int ANSWERS_MAX = 64;
  /** Of so many files the names are told when it is asked which are left out, so that no others are looked at. */
  private static final int NAMES_MAX = 1000;
  /** What file systems without blocks say, too. Where files are cut is Spark's own choice. */
  private static final long BLOCK_BYTES = 32L * 1024 * 1024;
  /** Which names are hidden is Spark's default: a session that hides others must not lose rows of a table. */
  private static final scala.collection.immutable.Map<String, String> AS_GIVEN =
      scala.collection.immutable.Map$.MODULE$.from(
          immutable(List.of(new Tuple2<>("ignoredPathSegmentRegex", "^[._]"))));

  /** The column that Spark's readers of Parquet fill with the numbers of rows. */
  static final String ROW_INDEX = ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME();

  private final SparkSession session;
  private final Path root;
  private final String origin;
  /** The table, for who can tell which files a filter leaves out; absent if nobody can. */
  private final JsonNode table;
  /** Who is asked; null for the Python process of the lake that the table names. */
  private final JobDriver driver;
  /** By filters, the files that may have rows which they let through; absent for all of them. */
  private final Map<String, Set<Path>> needed = new ConcurrentHashMap<>();
  /** Of what was given. Two with the same one are of the same files, whatever the commits. */
  private final ByteBuffer digest;
  private final PartitionSpec partitions;
  private final Seq<FileStatus> all;
  private final scala.collection.mutable.LinkedHashMap<Path, FileStatus> files =
      new scala.collection.mutable.LinkedHashMap<>();
  private final scala.collection.immutable.Map<Path, FileStatus[]> filesByPartition;

  private TableFiles(
      SparkSession session, StructType partitionSchema, byte[] packed, JsonNode how, JobDriver driver)
      throws IOException {
    super(session, AS_GIVEN, Option.empty(), NoopCache$.MODULE$);
    this.session = session;
    this.driver = driver;
    table = how.path("table");
    origin = how.get("origin").asText();
    digest = digest(packed);
    String zone = how.get("zone").asText();
    List<FileStatus> given = new ArrayList<>();
    List<PartitionPath> found = new ArrayList<>();
    Map<Path, List<FileStatus>> inPartition = new LinkedHashMap<>();
    try (MappingIterator<JsonNode> lines =
        JSON.readerFor(JsonNode.class).readValues(new GZIPInputStream(new ByteArrayInputStream(packed)))) {
      root = new Path(lines.next().asText());
      for (JsonNode values : lines.next()) {
        // Not where any file is: a name under which those with these values are found again.
        Path name = new Path(root, "partition-" + found.size());
        found.add(new PartitionPath(row(partitionSchema, values, zone), name));
        inPartition.put(name, new ArrayList<>());
      }
      while (lines.hasNext()) {
        JsonNode file = lines.next();
        Path path = new Path(file.get(1).asText());
        FileStatus status = new FileStatus(file.get(2).asLong(), false, 1, BLOCK_BYTES, file.get(3).asLong(), path);
        given.add(status);
        files.put(path, status);
        inPartition.get(found.get(file.get(0).asInt()).path()).add(status);
      }
    }
    all = immutable(given);
    partitions = new PartitionSpec(partitionSchema, immutable(found));
    List<Tuple2<Path, FileStatus[]>> grouped = new ArrayList<>();
    inPartition.forEach((name, its) -> grouped.add(new Tuple2<>(name, its.toArray(new FileStatus[0]))));
    filesByPartition = scala.collection.immutable.Map$.MODULE$.from(immutable(grouped));
  }

  /**
   * The rows of given files of a table.
   *
   * @param files compressed lines of JSON: the table's root, the partitions as lists of values, then each file as the
   *     number of its partition, its address, its size in bytes and the milliseconds of its last change
   * @param schema the columns in the files, as Spark writes a schema in JSON; null to have Spark look into them
   * @param partitionSchema the columns that are not in the files
   * @param how a JSON object: the format of the files as Spark names it, the options of its reader, the time zone of
   *     times among the values, what is to be told of where the rows come from, and whether the rows are numbered
   */
  public static Dataset<Row> rows(
      SparkSession session, byte[] files, String schema, String partitionSchema, String how) throws IOException {
    JsonNode asked = JSON.readTree(how);
    MarkedRows marked = asked.path("is_numbered").asBoolean() ? MarkedRows.NONE : null;
    return rows(session, files, schema, partitionSchema, asked, marked);
  }

  /**
   * The same.
   *
   * @param marked which rows of files of Parquet are read, with their numbers; null for all rows of any format, without
   */
  static Dataset<Row> rows(
      SparkSession session, byte[] files, String schema, String partitionSchema, JsonNode how, MarkedRows marked)
      throws IOException {
    HadoopFsRelation relation = relation(session, files, schema, partitionSchema, how, JobDrivers.chosen());
    if (marked == null) {
      return session.baseRelationToDataFrame(relation);
    }
    StructType columns = relation.dataSchema().add(ROW_INDEX, DataTypes.LongType);
    return session.baseRelationToDataFrame(selected(relation, columns, marked));
  }

  /**
   * The same, as what a plan reads.
   *
   * @param driver who tells which files a filter leaves out; null for the Python process of the lake
   */
  static HadoopFsRelation relation(
      SparkSession session, byte[] files, String schema, String partitionSchema, JsonNode how, JobDriver driver)
      throws IOException {
    List<Tuple2<String, String>> chosen = new ArrayList<>();
    how.get("options").properties().forEach(one -> chosen.add(new Tuple2<>(one.getKey(), one.getValue().asText())));
    scala.collection.immutable.Map<String, String> options =
        scala.collection.immutable.Map$.MODULE$.from(immutable(chosen));
    StructType partitionColumns = (StructType) DataType.fromJson(partitionSchema);
    TableFiles index = new TableFiles(session, partitionColumns, files, how, driver);
    FileFormat format = format(session, how.get("format").asText());
    StructType columns =
        schema == null ? index.inferred(session, format, options) : (StructType) DataType.fromJson(schema);
    return HadoopFsRelation.apply(
        index, partitionColumns, columns.asNullable(), Option.empty(), format, options, session);
  }

  /** The same files of Parquet, of which some columns and some rows are read. */
  static HadoopFsRelation selected(HadoopFsRelation files, StructType columns, MarkedRows marked) {
    return HadoopFsRelation.apply(
        files.location(),
        files.partitionSchema(),
        columns,
        files.bucketSpec(),
        new SelectedParquet(marked),
        files.options(),
        files.sparkSession());
  }

  /** What was told of where the rows of a plan come from, by those of its relations that were made here. */
  public static List<String> origins(LogicalPlan plan) {
    List<String> found = new ArrayList<>();
    collect(plan, found);
    return found;
  }

  private static void collect(LogicalPlan plan, List<String> found) {
    if (plan instanceof LogicalRelation leaf
        && leaf.relation() instanceof HadoopFsRelation relation
        && relation.location() instanceof TableFiles index
        && !index.origin.isEmpty()) {
      found.add(index.origin);
    }
    CollectionConverters.asJava(plan.children()).forEach(one -> collect(one, found));
    CollectionConverters.asJava(plan.subqueries()).forEach(one -> collect(one, found));
  }

  /** The name by which Spark knows a format of files; any other one as it is given. */
  static String shortName(SparkSession session, String name) {
    try {
      return WriteFacts.name(format(session, name));
    } catch (IllegalArgumentException notOfFiles) {
      return name;
    }
  }

  /** A format by its name, in the form that reads from an index of files. */
  private static FileFormat format(SparkSession session, String name) {
    if (name.equals("parquet")) {
      return new ParquetFileFormat(); // most are: to look it up, Spark looks into all its jars
    }
    Object made;
    try {
      var settings = ((org.apache.spark.sql.classic.SparkSession) session).sessionState().conf();
      made = DataSource.lookupDataSource(name, settings).getConstructor().newInstance();
      if (made instanceof FileDataSourceV2 newer) {
        made = newer.fallbackFileFormat().getConstructor().newInstance();
      }
    } catch (Exception absent) { // Scala's methods do not say which
      throw new IllegalArgumentException("Spark has no format '" + name + "'", absent);
    }
    if (made instanceof FileFormat format) {
      return format;
    }
    throw new IllegalArgumentException("'" + name + "' is no format of files");
  }

  private StructType inferred(
      SparkSession session, FileFormat format, scala.collection.immutable.Map<String, String> options) {
    List<FileStatus> some = new ArrayList<>();
    CollectionConverters.asJava(all).stream().filter(one -> one.getLen() > 0).forEach(some::add);
    Option<StructType> found = format.inferSchema(session, options, immutable(some));
    if (found.isEmpty()) {
      throw new IllegalArgumentException("no columns can be told from the files");
    }
    return found.get();
  }

  static ByteBuffer digest(byte[] packed) {
    try {
      return ByteBuffer.wrap(MessageDigest.getInstance("SHA-256").digest(packed));
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** So that Spark finds again what it has cached of a table, as long as that is as it was: a file never changes. */
  @Override
  public boolean equals(Object other) {
    return other instanceof TableFiles one && digest.equals(one.digest);
  }

  @Override
  public int hashCode() {
    return digest.hashCode();
  }

  @Override
  public Seq<Path> rootPaths() {
    return immutable(List.of(root));
  }

  @Override
  public PartitionSpec partitionSpec() {
    return partitions;
  }

  @Override
  public scala.collection.mutable.LinkedHashMap<Path, FileStatus> leafFiles() {
    return files;
  }

  @Override
  public scala.collection.immutable.Map<Path, FileStatus[]> leafDirToChildrenFiles() {
    return filesByPartition;
  }

  /** All of them, wherever they are; one that was given twice is there twice. */
  @Override
  public Seq<FileStatus> allFiles() {
    return all;
  }

  /** Those that may have rows which the filters let through. Spark filters the rows all the same. */
  @Override
  public Seq<PartitionDirectory> listFiles(Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    Seq<PartitionDirectory> listed = super.listFiles(partitionFilters, dataFilters);
    Set<Path> chosen = table.isObject() ? needed(ScanConditions.told(dataFilters)) : null;
    if (chosen == null) {
      return listed;
    }
    List<PartitionDirectory> found = new ArrayList<>();
    for (PartitionDirectory partition : CollectionConverters.asJava(listed)) {
      List<FileStatusWithMetadata> its =
          CollectionConverters.asJava(partition.files()).stream().filter(one -> chosen.contains(one.getPath())).toList();
      if (!its.isEmpty()) {
        found.add(new PartitionDirectory(partition.values(), immutable(its)));
      }
    }
    return immutable(found);
  }

  /** The files that filters do not leave out; null for all of them, also if nobody can tell. */
  private Set<Path> needed(List<Map<String, Object>> conditions) {
    if (conditions.isEmpty() || files.isEmpty()) {
      return null;
    }
    try {
      String asked = JSON.writeValueAsString(conditions);
      Set<Path> known = needed.get(asked);
      if (known == null) {
        known = asked(conditions);
        if (needed.size() < ANSWERS_MAX) {
          needed.put(asked, known);
        }
      }
      return known;
    } catch (IOException | RuntimeException problem) {
      LOG.info("no files of {} are left out by a filter: {}", origin, problem.getMessage());
      return null;
    }
  }

  private Set<Path> asked(List<Map<String, Object>> conditions) {
    JobDriver asked = driver == null ? JobDrivers.of(table.path("lake").asText(), "", "") : driver;
    Map<String, Object> request =
        Map.of("table", table.path("facts"), "conditions", conditions, "files", fewNames());
    JsonNode answer = JobDrivers.checked(JobDrivers.question(asked, session, "skip_files", request));
    Set<Path> chosen = answer.path("is_kept").asBoolean() ? new HashSet<>() : new HashSet<>(given());
    for (JsonNode name : answer.path("files")) {
      Path path = new Path(root + "/" + name.asText());
      if (answer.path("is_kept").asBoolean()) {
        chosen.add(path);
      } else {
        chosen.remove(path);
      }
    }
    return chosen;
  }

  /** The names of the files below the root; none if there are many, or if one lies elsewhere. */
  private List<String> fewNames() {
    String top = root + "/";
    if (files.size() > NAMES_MAX || !given().stream().allMatch(one -> one.toString().startsWith(top))) {
      return List.of();
    }
    return given().stream().map(one -> one.toString().substring(top.length())).toList();
  }

  private Set<Path> given() {
    return CollectionConverters.asJava(files).keySet();
  }

  /** They are of one version of the table, which never changes. */
  @Override
  public void refresh() {}

  private static InternalRow row(StructType schema, JsonNode texts, String zone) {
    StructField[] fields = schema.fields();
    Object[] values = new Object[fields.length];
    for (int at = 0; at < fields.length; at++) {
      JsonNode text = texts.get(at);
      values[at] = text.isNull() ? null : value(text.asText(), fields[at].dataType(), zone);
    }
    return new GenericInternalRow(values);
  }

  private static Object value(String text, DataType type, String zone) {
    Literal literal = new Literal(UTF8String.fromString(text), DataTypes.StringType);
    return new Cast(literal, type, Option.apply(zone), EvalMode.ANSI()).eval(InternalRow.empty());
  }

  private static <T> Seq<T> immutable(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
