package io.penstock.spark;

import java.util.Arrays;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of some rows of a batch. Nothing is copied: each value is read where it is.
 *
 * <p>The code that Spark generates names this class, and so it is public.
 */
public final class SelectedVector extends ColumnVector {
  private final ColumnVector column;
  /** Where the rows are in the column. */
  private final int[] places;
  /** Of those that were asked for. */
  private SelectedVector[] children = new SelectedVector[0];

  SelectedVector(ColumnVector column, int[] places) {
    super(column.dataType());
    this.column = column;
    this.places = places;
  }

  @Override
  public boolean isNullAt(int at) {
    return column.isNullAt(places[at]);
  }

  @Override
  public boolean getBoolean(int at) {
    return column.getBoolean(places[at]);
  }

  @Override
  public byte getByte(int at) {
    return column.getByte(places[at]);
  }

  @Override
  public short getShort(int at) {
    return column.getShort(places[at]);
  }

  @Override
  public int getInt(int at) {
    return column.getInt(places[at]);
  }

  @Override
  public long getLong(int at) {
    return column.getLong(places[at]);
  }

  @Override
  public float getFloat(int at) {
    return column.getFloat(places[at]);
  }

  @Override
  public double getDouble(int at) {
    return column.getDouble(places[at]);
  }

  @Override
  public Decimal getDecimal(int at, int precision, int scale) {
    return column.getDecimal(places[at], precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int at) {
    return column.getUTF8String(places[at]);
  }

  @Override
  public byte[] getBinary(int at) {
    return column.getBinary(places[at]);
  }

  @Override
  public ColumnarArray getArray(int at) {
    return column.getArray(places[at]);
  }

  @Override
  public ColumnarMap getMap(int at) {
    return column.getMap(places[at]);
  }

  /** A part of values that have parts: a struct, a variant, an interval. */
  @Override
  public ColumnVector getChild(int ordinal) {
    if (ordinal >= children.length) {
      children = Arrays.copyOf(children, ordinal + 1);
    }
    if (children[ordinal] == null) {
      children[ordinal] = new SelectedVector(column.getChild(ordinal), places);
    }
    return children[ordinal];
  }

  @Override
  public boolean hasNull() {
    return column.hasNull();
  }

  /** At most: rows that are not selected are counted, too. */
  @Override
  public int numNulls() {
    return column.numNulls();
  }

  /** Whoever made the column closes it. */
  @Override
  public void close() {}
}
