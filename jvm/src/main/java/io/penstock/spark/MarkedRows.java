package io.penstock.spark;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.zip.GZIPInputStream;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rows of files, as words of bitmaps, for a filter on the number of a file and that of a row in it.
 *
 * <p>The words are sent to each executor once, when a job first needs them.
 */
public final class MarkedRows implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Of the number of a row, the bits that tell its place in its word. */
  private static final int WORD_BITS = 6;

  /** How many rows a word stands for. */
  private static final long WORD_ROWS = 1L << WORD_BITS;

  /** By how many bits the number of a file is before that of a word: no file has so many. */
  private static final int FILE_SHIFT = 34;

  /** Of a word: the number of its file, that of its first row, and the word. */
  private static final int NUMBERS_OF_WORD = 3;

  private final transient SparkContext context;
  /** Keys of words in their order, of file and number, and then the words; null where they were not needed yet. */
  private transient long[] words;

  private Broadcast<long[]> sent;
  /** Of what was given. */
  private final String digest;
  /** Rows in their order mostly have the same answer as the one before; no two threads see half of it. */
  private Span last = new Span(-1, 0, 0, 0, 0);

  /**
   * Consecutive rows of a file: those of a word, or between two words, of which none is marked.
   *
   * @param next the place of the word behind it
   */
  private record Span(long file, long start, long rows, long word, int next) implements Serializable {}

  private MarkedRows(SparkContext context, long[] words, String digest) {
    this.context = context;
    this.words = words;
    this.digest = digest;
  }

  /**
   * Whether a row is one of those that are named.
   *
   * @param packed compressed numbers of 64 bits, the lowest byte first: of each word the number of its file, that of its
   *     first row, and the word, whose lowest bit is that row; in the order of files and rows
   * @param file the number of the file
   * @param row the number of the row in it
   */
  public static Column among(SparkSession session, byte[] packed, Column file, Column row) throws IOException {
    ExpressionUtils$ columns = ExpressionUtils$.MODULE$;
    return columns.column(among(session, packed, columns.expression(file), columns.expression(row)));
  }

  /** The same, of a plan. */
  static Expression among(SparkSession session, byte[] packed, Expression file, Expression row) throws IOException {
    String digest = HexFormat.of().formatHex(TableFiles.digest(packed).array());
    MarkedRows marked = new MarkedRows(session.sparkContext(), words(packed), digest);
    // So that Spark does not ask whether there is a value before each row.
    List<Expression> present = List.of(new KnownNotNull(file), new KnownNotNull(row));
    return new Invoke(
        new Literal(marked, new ObjectType(MarkedRows.class)),
        "has",
        DataTypes.BooleanType,
        list(present),
        list(List.<AbstractDataType>of()),
        true,
        false,
        true);
  }

  private static <T> Seq<T> list(List<T> all) {
    return CollectionConverters.asScala(all).toSeq();
  }

  private static long[] words(byte[] packed) throws IOException {
    LongBuffer numbers;
    try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(packed))) {
      numbers = ByteBuffer.wrap(in.readAllBytes()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    }
    int count = numbers.remaining() / NUMBERS_OF_WORD;
    long[] words = new long[2 * count];
    for (int at = 0; at < count; at++) {
      words[at] = key((int) numbers.get(), numbers.get());
      words[count + at] = numbers.get();
    }
    return words;
  }

  private static long key(int file, long row) {
    return (long) file << FILE_SHIFT | row >> WORD_BITS;
  }

  private static long file(long key) {
    return key >> FILE_SHIFT;
  }

  private static long firstRow(long key) {
    return (key & (1L << FILE_SHIFT) - 1) << WORD_BITS;
  }

  /** Whether a row is named; for the code that Spark makes of the filter. */
  public boolean has(int file, long row) {
    Span span = last;
    if (span.file != file || Long.compareUnsigned(row - span.start, span.rows) >= 0) {
      span = span(span.next, file, row);
      last = span;
    }
    return (span.word >>> row & 1) != 0;
  }

  private Span span(int next, int file, long row) {
    if (words == null) {
      words = sent.value();
    }
    int count = words.length / 2;
    long key = key(file, row);
    int at = next;
    if (at > 0 && words[at - 1] >= key || at < count && words[at] < key) {
      int found = Arrays.binarySearch(words, 0, count, key);
      at = found < 0 ? -found - 1 : found;
    }
    if (at < count && words[at] == key) {
      return new Span(file, firstRow(key), WORD_ROWS, words[count + at], at + 1);
    }
    long start = at > 0 && file(words[at - 1]) == file ? firstRow(words[at - 1]) + WORD_ROWS : 0;
    long end = at < count && file(words[at]) == file ? firstRow(words[at]) : Long.MAX_VALUE;
    return new Span(file, start, end - start, 0, at);
  }

  /** A job takes along where the words are, and not the words: it is sent anew with each task. */
  private synchronized void writeObject(ObjectOutputStream out) throws IOException {
    if (sent == null) {
      sent = JavaSparkContext.fromSparkContext(context).broadcast(words);
    }
    out.defaultWriteObject();
  }

  /** So that Spark finds again what it has cached of a table, as long as that is as it was. */
  @Override
  public boolean equals(Object other) {
    return other instanceof MarkedRows rows && digest.equals(rows.digest);
  }

  @Override
  public int hashCode() {
    return digest.hashCode();
  }

  /** For plans that are shown. */
  @Override
  public String toString() {
    return "marked rows";
  }
}
