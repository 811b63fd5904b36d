package io.penstock.spark;

import java.io.Closeable;
import java.io.IOException;
import java.io.Serializable;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.PrimitiveIterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.RecordReaderIterator;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetRowIndexUtil;
import org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Function1;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/**
 * Spark's reader of Parquet, which reads some rows of files, and numbers rows at little cost.
 *
 * <p>A batch shows those of its rows that are read, by their places ({@link SelectedVector}): a filter behind the reader
 * would take longer for each row than to read a number. Spark itself makes an object for the number of each row, in the
 * column {@link TableFiles#ROW_INDEX}; what keeps it from that is private to its reader. A Spark that is not as those
 * that are known numbers rows itself, and all else is the same.
 */
final class SelectedParquet extends ParquetFileFormat {
  private static final long serialVersionUID = 1L;
  private final MarkedRows marked;

  SelectedParquet(MarkedRows marked) {
    this.marked = marked;
  }

  @Override
  public boolean supportBatch(SparkSession session, StructType columns) {
    return super.supportBatch(session, columnsToRead(columns));
  }

  /** With the numbers of rows, to tell which of them are read. */
  private StructType columnsToRead(StructType columns) {
    return marked.areNone() || numberColumn(columns) >= 0
        ? columns
        : columns.add(TableFiles.ROW_INDEX, DataTypes.LongType);
  }

  private static int numberColumn(StructType columns) {
    return List.of(columns.fieldNames()).indexOf(TableFiles.ROW_INDEX);
  }

  @Override
  public Option<Seq<String>> vectorTypes(StructType requiredSchema, StructType partitionSchema, SQLConf settings) {
    Option<Seq<String>> types = super.vectorTypes(requiredSchema, partitionSchema, settings);
    if (types.isEmpty() || marked.areNone()) {
      return types;
    }
    List<String> names = new ArrayList<>(CollectionConverters.asJava(types.get()));
    for (int at = 0; at < requiredSchema.length(); at++) {
      names.set(at, SelectedVector.class.getName());
    }
    return Option.apply(CollectionConverters.asScala(names).toSeq());
  }

  @Override
  public Function1<PartitionedFile, Iterator<InternalRow>> buildReaderWithPartitionValues(
      SparkSession session,
      StructType dataSchema,
      StructType partitionSchema,
      StructType requiredSchema,
      Seq<Filter> filters,
      scala.collection.immutable.Map<String, String> options,
      Configuration configuration) {
    StructType columns = columnsToRead(requiredSchema);
    Function1<PartitionedFile, Iterator<InternalRow>> reader =
        super.buildReaderWithPartitionValues(
            session, dataSchema, partitionSchema, columns, filters, options, configuration);
    boolean isAsked = numberColumn(requiredSchema) >= 0;
    return new SelectedReader(reader, marked, columns, partitionSchema, isAsked);
  }

  /** So that Spark finds again what it has cached of a table, as long as the same rows are selected. */
  @Override
  public boolean equals(Object other) {
    return other instanceof SelectedParquet one && marked.equals(one.marked);
  }

  @Override
  public int hashCode() {
    return marked.hashCode();
  }

  private static final class SelectedReader extends AbstractFunction1<PartitionedFile, Iterator<InternalRow>>
      implements Serializable {
    private static final long serialVersionUID = 1L;
    private final Function1<PartitionedFile, Iterator<InternalRow>> reader;
    private final MarkedRows marked;
    private final StructType columns;
    private final StructType constants;
    /** Whether the numbers of rows are asked for by others. */
    private final boolean isAsked;

    SelectedReader(
        Function1<PartitionedFile, Iterator<InternalRow>> reader,
        MarkedRows marked,
        StructType columns,
        StructType constants,
        boolean isAsked) {
      this.reader = reader;
      this.marked = marked;
      this.columns = columns;
      this.constants = constants;
      this.isAsked = isAsked;
    }

    @Override
    @SuppressWarnings("unchecked") // Spark's types do not tell rows and batches apart
    public Iterator<InternalRow> apply(PartitionedFile file) {
      Iterator<InternalRow> rows = reader.apply(file);
      RowNumbers numbers = RowNumbers.putInto(rows, isAsked);
      if (marked.areNone()) {
        return rows;
      }
      int number = numberColumn(columns);
      Seq<Expression> shown = isAsked ? null : without(number);
      MarkedRows.OfFile ofFile = marked.of(file.partitionValues(), constants);
      return (Iterator<InternalRow>)
          (Iterator<?>) new SelectedRows(rows, numbers, number, columns.length(), shown, ofFile);
    }

    /** What a row has, without its number. */
    private Seq<Expression> without(int number) {
      List<Expression> all = new ArrayList<>();
      for (StructType some : List.of(columns, constants)) {
        for (StructField field : some.fields()) {
          all.add(new BoundReference(all.size(), field.dataType(), true));
        }
      }
      all.remove(number);
      return CollectionConverters.asScala(all).toSeq();
    }
  }

  /** The rows of a file that are read, one by one or in batches. */
  private static final class SelectedRows extends AbstractIterator<Object> implements Closeable {
    private final Iterator<?> rows;
    /** What tells the rows of a batch; null for a reader that fills the column of numbers. */
    private final RowNumbers numbers;
    /** The column of the numbers. */
    private final int column;
    private final int constantsFrom;
    /** What a row has without its number; null if that is to be shown. */
    private final Seq<Expression> shown;
    /** Makes rows of that; null if none came yet. */
    private UnsafeProjection projection;
    private final MarkedRows.OfFile marked;
    /** Those of the last batch. Spark's reader uses its columns again for the next batch, too. */
    private int[] places = new int[0];
    private Object next;

    SelectedRows(
        Iterator<?> rows,
        RowNumbers numbers,
        int column,
        int constantsFrom,
        Seq<Expression> shown,
        MarkedRows.OfFile marked) {
      this.rows = rows;
      this.numbers = numbers;
      this.column = column;
      this.constantsFrom = constantsFrom;
      this.shown = shown;
      this.marked = marked;
    }

    @Override
    public boolean hasNext() {
      while (next == null && rows.hasNext()) {
        Object read = rows.next();
        next = read instanceof ColumnarBatch batch ? selected(batch) : selected((InternalRow) read);
      }
      return next != null;
    }

    @Override
    public Object next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      Object read = next;
      next = null;
      return read;
    }

    private InternalRow selected(InternalRow row) {
      if (!marked.isRead(row.getLong(column))) {
        return null;
      }
      if (shown == null) {
        return row;
      }
      if (projection == null) {
        projection = UnsafeProjection.create(shown);
      }
      return projection.apply(row);
    }

    private ColumnarBatch selected(ColumnarBatch batch) {
      if (places.length != batch.numRows()) {
        places = new int[batch.numRows()];
      }
      int count =
          numbers != null && numbers.areConsecutive
              ? marked.selectFrom(numbers.first, places)
              : select(batch.column(column), places);
      if (count == 0) {
        return null;
      }
      List<ColumnVector> columns = new ArrayList<>();
      for (int at = 0; at < batch.numCols(); at++) {
        if (at != column || shown == null) {
          columns.add(at < constantsFrom ? new SelectedVector(batch.column(at), places) : batch.column(at));
        }
      }
      return new ColumnarBatch(columns.toArray(new ColumnVector[0]), count);
    }

    private int select(ColumnVector numbers, int[] places) {
      int count = 0;
      for (int at = 0; at < places.length; at++) {
        if (marked.isRead(numbers.getLong(at))) {
          places[count++] = at;
        }
      }
      return count;
    }

    @Override
    public void close() throws IOException {
      if (rows instanceof Closeable reader) {
        reader.close();
      }
    }
  }

  /** What Spark's vectorised reader asks for the numbers of rows. */
  private static final class RowNumbers extends ParquetRowIndexUtil.RowIndexGenerator {
    /** Whether others look at the column of the numbers. */
    private final boolean isShown;
    /** The number of the first row of the group that is read. */
    private long groupFirst;
    /** How many rows of the group were read. */
    private long groupRead;
    /** The rows that are read of the group, if not all are; null for all of them. */
    private PrimitiveIterator.OfLong chosen;
    /** Whether the rows of the batch follow each other; if not, the column has their numbers. */
    private boolean areConsecutive;
    /** The number of the first of them. */
    private long first;

    private RowNumbers(int column, boolean isShown) {
      super(column);
      this.isShown = isShown;
    }

    /** Have a reader ask here; null for one without batches, and for one of a Spark that is not known yet. */
    static RowNumbers putInto(Iterator<?> rows, boolean isAsked) {
      try {
        if (rows instanceof RecordReaderIterator<?>
            && field(RecordReaderIterator.class, "rowReader").get(rows) instanceof VectorizedParquetRecordReader reader) {
          Field generator = field(VectorizedParquetRecordReader.class, "rowIndexGenerator");
          Field given = field(ParquetRowIndexUtil.RowIndexGenerator.class, "rowIndexColumnIdx");
          boolean isInBatches = field(VectorizedParquetRecordReader.class, "returnColumnarBatch").getBoolean(reader);
          RowNumbers numbers = new RowNumbers(given.getInt(generator.get(reader)), isAsked || !isInBatches);
          generator.set(reader, numbers);
          return numbers;
        }
      } catch (ReflectiveOperationException | RuntimeException | LinkageError another) {
        return null;
      }
      return null;
    }

    private static Field field(Class<?> owner, String name) throws ReflectiveOperationException {
      Field field = owner.getDeclaredField(name);
      field.setAccessible(true);
      return field;
    }

    @Override
    public void initFromPageReadStore(PageReadStore pages) {
      groupFirst = pages.getRowIndexOffset().orElseThrow();
      groupRead = 0;
      chosen = pages.getRowIndexes().orElse(null);
    }

    @Override
    public void populateRowIndex(WritableColumnVector column, int count) {
      areConsecutive = chosen == null;
      first = groupFirst + groupRead;
      groupRead += count;
      for (int at = 0; at < count && (isShown || !areConsecutive); at++) {
        column.putLong(at, areConsecutive ? first + at : groupFirst + chosen.nextLong());
      }
    }
  }
}
