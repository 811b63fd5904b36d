package io.penstock.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimeUnit;
import org.apache.parquet.schema.LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
import org.apache.parquet.schema.PrimitiveType;

/** What the footer of a Parquet file says: how many rows it has, and the bounds of some columns. */
record Footer(long rows, List<Column> columns) {
  /** So much of a bound is told: more than any statistics keep of it. */
  private static final int BOUND_MAX_BYTES = 512;

  /**
   * A column of plain values.
   *
   * @param type how Parquet keeps them, such as INT32
   * @param nulls how many are null; -1 if the footer does not tell
   * @param min the smallest value in Parquet's plain encoding; null if the footer does not tell, or if all are null
   */
  record Column(String[] path, String type, long nulls, byte[] min, byte[] max) {}

  static Footer read(Configuration configuration, FileStatus file, String[][] wanted) throws IOException {
    ParquetMetadata footer;
    try (ParquetFileReader reader = ParquetFileReader.open(HadoopInputFile.fromStatus(file, configuration))) {
      footer = reader.getFooter();
    }
    long rows = 0;
    for (BlockMetaData block : footer.getBlocks()) {
      rows += block.getRowCount();
    }
    List<Column> columns = new ArrayList<>();
    for (String[] path : wanted) {
      columns.add(column(footer, path));
    }
    return new Footer(rows, columns);
  }

  private static Column column(ParquetMetadata footer, String[] path) {
    Statistics<?> all = null;
    String type = "";
    boolean hasNulls = true;
    boolean hasBounds = true;
    for (BlockMetaData block : footer.getBlocks()) {
      ColumnChunkMetaData chunk = chunk(block, path);
      Statistics<?> its = chunk == null ? null : chunk.getStatistics();
      if (its == null) {
        return new Column(path, type, -1, null, null);
      }
      type = its.type().getPrimitiveTypeName().name();
      hasBounds &= isUnderstood(its.type());
      hasNulls &= its.isNumNullsSet();
      // Without bounds, all of it is null or the bounds are not known: then neither are those of the file.
      hasBounds &= its.hasNonNullValue() || (its.isNumNullsSet() && its.getNumNulls() == chunk.getValueCount());
      if (all == null) {
        all = its.copy();
      } else {
        all.mergeStatistics(its);
      }
    }
    if (all == null) {
      return new Column(path, type, 0, null, null);
    }
    boolean isBounded = hasBounds && all.hasNonNullValue();
    return new Column(
        path,
        type,
        hasNulls ? all.getNumNulls() : -1,
        isBounded ? cut(all.getMinBytes()) : null,
        isBounded ? cut(all.getMaxBytes()) : null);
  }

  /** Times are told in microseconds; whoever has Spark write them in another unit goes without their bounds. */
  private static boolean isUnderstood(PrimitiveType type) {
    return !(type.getLogicalTypeAnnotation() instanceof TimestampLogicalTypeAnnotation time)
        || time.getUnit() == TimeUnit.MICROS;
  }

  private static ColumnChunkMetaData chunk(BlockMetaData block, String[] path) {
    for (ColumnChunkMetaData chunk : block.getColumns()) {
      if (Arrays.equals(chunk.getPath().toArray(), path)) {
        return chunk;
      }
    }
    return null;
  }

  private static byte[] cut(byte[] bound) {
    return bound.length <= BOUND_MAX_BYTES ? bound : Arrays.copyOf(bound, BOUND_MAX_BYTES);
  }
}
