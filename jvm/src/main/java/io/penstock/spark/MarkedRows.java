package io.penstock.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.Arrays;
import java.util.Objects;
import java.util.stream.IntStream;
import java.util.zip.GZIPInputStream;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * Rows of files of Parquet, as words of bitmaps: those that are read, or those that are left out.
 *
 * <p>The words are sent to each executor once, when a job first needs them.
 */
public final class MarkedRows implements Serializable {
  private static final long serialVersionUID = 1L;

  private static final ObjectMapper JSON = new ObjectMapper();

  /** All rows of all files are read. */
  static final MarkedRows NONE = new MarkedRows(null, new long[0], ByteBuffer.allocate(0), null, true);

  /** Of the number of a row, the bits that tell its place in its word. */
  private static final int WORD_BITS = 6;

  /** By how many bits the number of a file is before that of a word: no file has so many. */
  private static final int FILE_SHIFT = 34;

  /** Of a word: the number of its file, that of its first row, and the word. */
  private static final int NUMBERS_OF_WORD = 3;

  /** How many rows are looked up at once where they come one by one. */
  private static final int WINDOW_ROWS = 4096;

  private static volatile int[] allPlaces = IntStream.range(0, WINDOW_ROWS).toArray();

  private final transient SparkContext context;
  /** Keys of words in their order, of file and number, and then the words; null where they were not needed yet. */
  private transient long[] words;
  /** Of what was given. */
  private final transient ByteBuffer digest;
  /** The constant of files that is their number; null if no row is marked. */
  private final String fileColumn;

  private final boolean areLeftOut;
  private Broadcast<long[]> sent;

  private MarkedRows(
      SparkContext context, long[] words, ByteBuffer digest, String fileColumn, boolean areLeftOut) {
    this.context = context;
    this.words = words;
    this.digest = digest;
    this.fileColumn = fileColumn;
    this.areLeftOut = areLeftOut;
  }

  /**
   * Some rows of files, and the number of each in its file as the column {@link TableFiles#ROW_INDEX}.
   *
   * @param files as {@link TableFiles#rows} takes them, with the schemas and how they are read
   * @param packed as {@link #unpack} takes them, with what follows
   */
  public static Dataset<Row> rows(
      SparkSession session,
      byte[] files,
      String schema,
      String partitionSchema,
      String how,
      byte[] packed,
      String fileColumn,
      boolean areLeftOut)
      throws IOException {
    MarkedRows marked = unpack(session, packed, fileColumn, areLeftOut);
    return TableFiles.rows(session, files, schema, partitionSchema, JSON.readTree(how), marked);
  }

  /**
   * Those that are named.
   *
   * @param packed compressed numbers of 64 bits, the lowest byte first: of each word the number of its file, that of its
   *     first row, and the word, whose lowest bit is that row; in the order of files and rows
   * @param fileColumn the column of the partition schema that is the number of a file
   * @param areLeftOut whether the rows that the words name are left out, or all others
   */
  static MarkedRows unpack(SparkSession session, byte[] packed, String fileColumn, boolean areLeftOut)
      throws IOException {
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
    return new MarkedRows(session.sparkContext(), words, TableFiles.digest(packed), fileColumn, areLeftOut);
  }

  private static long key(int file, long row) {
    return (long) file << FILE_SHIFT | row >> WORD_BITS;
  }

  /** Whether no row is marked. */
  boolean areNone() {
    return fileColumn == null;
  }

  /** Those of one file, by the constants that it has. */
  OfFile of(InternalRow constants, StructType columns) {
    return new OfFile(constants.getInt(columns.fieldIndex(fileColumn)));
  }

  /** Tells which rows of a file are read; for one thread. */
  final class OfFile {
    private final int file;
    /** The number of the row whose mark is the first one. */
    private long first;
    /** A bit for each of the rows from there on. */
    private long[] marks = new long[0];

    private OfFile(int file) {
      this.file = file;
    }

    /** Whether a row is read; quick if rows come in their order. */
    boolean isRead(long row) {
      long at = row - first;
      if (at < 0 || at >= (long) marks.length * Long.SIZE) {
        first = row & -WINDOW_ROWS;
        marks = marks(file, first, WINDOW_ROWS);
        at = row - first;
      }
      return (marks[(int) (at >> WORD_BITS)] >>> at & 1) == 0 == areLeftOut;
    }

    /** Of rows that follow each other, as many as there are places, put the places of those that are read; their count. */
    int selectFrom(long row, int[] places) {
      long[] marks = marks(file, row, places.length);
      int[] all = allPlaces(places.length);
      int count = 0;
      for (int at = 0; at < places.length; at += Long.SIZE) {
        long left = areLeftOut ? ~marks[at >> WORD_BITS] : marks[at >> WORD_BITS];
        if (places.length - at < Long.SIZE) {
          left &= (1L << places.length - at) - 1;
        }
        while (left != 0) {
          int from = Long.numberOfTrailingZeros(left);
          int many = Long.numberOfTrailingZeros(~(left >>> from));
          System.arraycopy(all, at + from, places, count, many);
          count += many;
          left &= from + many < Long.SIZE ? -1L << from + many : 0;
        }
      }
      return count;
    }
  }

  /** The numbers from zero, at least so many. */
  private static int[] allPlaces(int count) {
    int[] places = allPlaces;
    if (places.length < count) {
      places = IntStream.range(0, count).toArray();
      allPlaces = places;
    }
    return places;
  }

  /** A bit for each of so many rows of a file that follow each other, set for those that are marked. */
  private long[] marks(int file, long first, int count) {
    long[] marks = new long[(count + Long.SIZE - 1) / Long.SIZE];
    long[] all = words();
    int size = all.length / 2;
    long last = key(file, first + count - 1);
    int at = Arrays.binarySearch(all, 0, size, key(file, first));
    for (at = at < 0 ? -at - 1 : at; at < size && all[at] <= last; at++) {
      long from = ((all[at] & (1L << FILE_SHIFT) - 1) << WORD_BITS) - first;
      long word = all[size + at];
      int place = (int) (from >> WORD_BITS); // -1 for a word that begins before the first row
      if (place >= 0) {
        marks[place] |= word << from;
      }
      if ((from & Long.SIZE - 1) != 0 && place + 1 < marks.length) {
        marks[place + 1] |= word >>> -from;
      }
    }
    return marks;
  }

  private long[] words() {
    if (words == null) {
      words = sent == null ? new long[0] : sent.value();
    }
    return words;
  }

  /** A job takes along where the words are, and not the words: it is sent anew with each task. */
  private synchronized void writeObject(ObjectOutputStream out) throws IOException {
    if (sent == null && context != null) {
      sent = JavaSparkContext.fromSparkContext(context).broadcast(words);
    }
    out.defaultWriteObject();
  }

  /** So that Spark finds again what it has cached of a table, as long as that is as it was. */
  @Override
  public boolean equals(Object other) {
    return other instanceof MarkedRows rows
        && digest.equals(rows.digest)
        && Objects.equals(fileColumn, rows.fileColumn)
        && areLeftOut == rows.areLeftOut;
  }

  @Override
  public int hashCode() {
    return digest.hashCode();
  }
}
