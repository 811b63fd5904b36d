package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MappingIterator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.GZIPInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The files of a table, as they were given: Spark lists nothing, and reads them as it reads any Parquet files.
 *
 * <p>Partition values are those of the table's log, whatever the directories are called that the files are in.
 */
public final class TableFiles extends PartitioningAwareFileIndex {
  private static final ObjectMapper JSON = new ObjectMapper();
  /** What file systems without blocks say, too. Where files are cut is Spark's own choice. */
  private static final long BLOCK_BYTES = 32L * 1024 * 1024;

  private final Path root;
  private final PartitionSpec partitions;
  private final scala.collection.mutable.LinkedHashMap<Path, FileStatus> files =
      new scala.collection.mutable.LinkedHashMap<>();
  private final scala.collection.immutable.Map<Path, FileStatus[]> filesByPartition;

  private TableFiles(SparkSession session, StructType partitionSchema, byte[] packed) throws IOException {
    super(session, scala.collection.immutable.Map$.MODULE$.empty(), Option.empty(), NoopCache$.MODULE$);
    List<PartitionPath> found = new ArrayList<>();
    Map<Path, List<FileStatus>> inPartition = new LinkedHashMap<>();
    try (MappingIterator<JsonNode> lines =
        JSON.readerFor(JsonNode.class).readValues(new GZIPInputStream(new ByteArrayInputStream(packed)))) {
      root = new Path(lines.next().asText());
      for (JsonNode values : lines.next()) {
        // Not where any file is: a name under which those with these values are found again.
        Path name = new Path(root, "partition-" + found.size());
        found.add(new PartitionPath(row(partitionSchema, values), name));
        inPartition.put(name, new ArrayList<>());
      }
      while (lines.hasNext()) {
        JsonNode file = lines.next();
        Path path = new Path(file.get(1).asText());
        FileStatus status = new FileStatus(file.get(2).asLong(), false, 1, BLOCK_BYTES, file.get(3).asLong(), path);
        files.put(path, status);
        inPartition.get(found.get(file.get(0).asInt()).path()).add(status);
      }
    }
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
   * @param schema the columns in the files, as Spark writes a schema in JSON
   * @param partitionSchema the columns that are not in the files
   * @param options how Spark is to read them, as a JSON object
   */
  public static Dataset<Row> rows(
      SparkSession session, byte[] files, String schema, String partitionSchema, String options)
      throws IOException {
    List<Tuple2<String, String>> chosen = new ArrayList<>();
    JSON.readTree(options)
        .properties()
        .forEach(one -> chosen.add(new Tuple2<>(one.getKey(), one.getValue().asText())));
    StructType partitionColumns = (StructType) DataType.fromJson(partitionSchema);
    HadoopFsRelation relation =
        HadoopFsRelation.apply(
            new TableFiles(session, partitionColumns, files),
            partitionColumns,
            (StructType) DataType.fromJson(schema),
            Option.empty(),
            new ParquetFileFormat(),
            scala.collection.immutable.Map$.MODULE$.from(immutable(chosen)),
            session);
    return session.baseRelationToDataFrame(relation);
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

  /** All of them, wherever they are. */
  @Override
  public Seq<FileStatus> allFiles() {
    return files.values().toSeq();
  }

  /** They are of one version of the table, which never changes. */
  @Override
  public void refresh() {}

  private static InternalRow row(StructType schema, JsonNode texts) {
    StructField[] fields = schema.fields();
    Object[] values = new Object[fields.length];
    for (int at = 0; at < fields.length; at++) {
      JsonNode text = texts.get(at);
      values[at] = text.isNull() ? null : value(text.asText(), fields[at].dataType());
    }
    return new GenericInternalRow(values);
  }

  private static Object value(String text, DataType type) {
    Literal literal = new Literal(UTF8String.fromString(text), DataTypes.StringType);
    return new Cast(literal, type, Option.apply("UTC"), EvalMode.ANSI()).eval(InternalRow.empty());
  }

  private static <T> Seq<T> immutable(List<T> list) {
    return CollectionConverters.asScala(list).toSeq();
  }
}
