package io.penstock.spark;

import java.io.Serializable;
import java.lang.reflect.Field;
import java.util.PrimitiveIterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.RecordReaderIterator;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetRowIndexUtil;
import org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Spark's reader of Parquet, whose numbers of rows cost little.
 *
 * <p>Spark makes an object for the number of each row, which takes as long as to read a column. What is not as it is
 * in the versions that are known stays as Spark does it: the numbers are the same.
 */
final class NumberedParquet extends ParquetFileFormat {
  private static final long serialVersionUID = 1L;

  @Override
  public Function1<PartitionedFile, Iterator<InternalRow>> buildReaderWithPartitionValues(
      SparkSession session,
      StructType dataSchema,
      StructType partitionSchema,
      StructType requiredSchema,
      Seq<Filter> filters,
      scala.collection.immutable.Map<String, String> options,
      Configuration configuration) {
    return new NumberedReader(
        super.buildReaderWithPartitionValues(
            session, dataSchema, partitionSchema, requiredSchema, filters, options, configuration));
  }

  private static final class NumberedReader extends AbstractFunction1<PartitionedFile, Iterator<InternalRow>>
      implements Serializable {
    private static final long serialVersionUID = 1L;
    private final Function1<PartitionedFile, Iterator<InternalRow>> reader;

    NumberedReader(Function1<PartitionedFile, Iterator<InternalRow>> reader) {
      this.reader = reader;
    }

    @Override
    public Iterator<InternalRow> apply(PartitionedFile file) {
      Iterator<InternalRow> rows = reader.apply(file);
      if (rows instanceof RecordReaderIterator<?> batches) {
        try {
          RowNumbers.putInto(batches);
        } catch (ReflectiveOperationException | RuntimeException | LinkageError another) {
          return rows; // of a Spark that is not known yet; it numbers rows itself
        }
      }
      return rows;
    }
  }

  /** The numbers of the rows of a batch, in their file. */
  private static final class RowNumbers extends ParquetRowIndexUtil.RowIndexGenerator {
    private long[] batch = new long[0];
    /** Of the first row of the group that is read. */
    private long first;
    /** How many rows of the group were read before. */
    private long before;
    /** The rows that are read of the group, if not all are; null for all of them. */
    private PrimitiveIterator.OfLong chosen;

    private RowNumbers(int column) {
      super(column);
    }

    static void putInto(RecordReaderIterator<?> batches) throws ReflectiveOperationException {
      Object reader = field(RecordReaderIterator.class, "rowReader").get(batches);
      if (reader instanceof VectorizedParquetRecordReader) {
        Field generator = field(VectorizedParquetRecordReader.class, "rowIndexGenerator");
        Object given = generator.get(reader);
        if (given != null) {
          int column = field(ParquetRowIndexUtil.RowIndexGenerator.class, "rowIndexColumnIdx").getInt(given);
          generator.set(reader, new RowNumbers(column));
        }
      }
    }

    private static Field field(Class<?> owner, String name) throws ReflectiveOperationException {
      Field field = owner.getDeclaredField(name);
      field.setAccessible(true);
      return field;
    }

    @Override
    public void initFromPageReadStore(PageReadStore pages) {
      first = pages.getRowIndexOffset().orElseThrow();
      before = 0;
      chosen = pages.getRowIndexes().orElse(null);
    }

    @Override
    public void populateRowIndex(WritableColumnVector numbers, int count) {
      if (batch.length < count) {
        batch = new long[count];
      }
      for (int at = 0; at < count; at++) {
        batch[at] = first + (chosen == null ? before + at : chosen.nextLong());
      }
      before += count;
      numbers.putLongs(0, count, batch, 0);
    }
  }
}
