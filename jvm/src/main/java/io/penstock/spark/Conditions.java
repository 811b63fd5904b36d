package io.penstock.spark;

import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What a filter asks of the columns of a table, as text: comparisons of a column with a value of its type. It is for
 * leaving out files. Spark filters all the same, so whatever is not understood here only leaves out less.
 */
final class Conditions {
  private static final Set<DataType> WHOLE_NUMBERS =
      Set.of(DataTypes.ByteType, DataTypes.ShortType, DataTypes.IntegerType, DataTypes.LongType);
  /** Texts that are quoted alike everywhere. */
  private static final Pattern PLAIN = Pattern.compile("[\\p{Alnum} _.,:/+-]*");

  private Conditions() {}

  /** The parts of a condition that are understood, of which each must be true; null if none is. */
  static String text(Expression condition) {
    List<String> parts = new ArrayList<>();
    collect(condition, parts);
    return parts.isEmpty() ? null : String.join(" AND ", parts);
  }

  private static void collect(Expression condition, List<String> parts) {
    if (condition instanceof And both) {
      collect(both.left(), parts);
      collect(both.right(), parts);
      return;
    }
    String text = condition instanceof BinaryComparison one ? compared(one) : null;
    if (text != null) {
      parts.add(text);
    }
  }

  private static String compared(BinaryComparison one) {
    String sign = sign(one, false);
    if (one.left() instanceof AttributeReference column && sign != null) {
      String value = value(one.right(), column);
      return value == null ? null : name(column) + sign + value;
    }
    sign = sign(one, true);
    if (one.right() instanceof AttributeReference column && sign != null) {
      String value = value(one.left(), column);
      return value == null ? null : name(column) + sign + value;
    }
    return null;
  }

  private static String sign(BinaryComparison one, boolean isTurned) {
    if (one instanceof EqualTo) {
      return " = ";
    }
    if (one instanceof LessThan) {
      return isTurned ? " > " : " < ";
    }
    if (one instanceof LessThanOrEqual) {
      return isTurned ? " >= " : " <= ";
    }
    if (one instanceof GreaterThan) {
      return isTurned ? " < " : " > ";
    }
    return one instanceof GreaterThanOrEqual ? isTurned ? " <= " : " >= " : null;
  }

  private static String name(AttributeReference column) {
    return "`" + column.name() + "`";
  }

  /** A value that is the same for all rows, as text; null for one that is not, or is of another kind. */
  private static String value(Expression expression, AttributeReference column) {
    DataType type = column.dataType();
    if (column.name().indexOf('`') >= 0 || !expression.foldable() || !expression.deterministic() || !expression.dataType().equals(type)) {
      return null;
    }
    Object value;
    try {
      value = expression.eval(InternalRow.empty());
    } catch (RuntimeException notYet) {
      return null; // such as the time, which Spark fills in later; or an error, which is Spark's to raise
    }
    if (WHOLE_NUMBERS.contains(type) && value != null) {
      return value.toString();
    }
    if (type.equals(DataTypes.DateType) && value instanceof Integer days) {
      return "'" + LocalDate.ofEpochDay(days) + "'";
    }
    if (type.equals(DataTypes.StringType) && value instanceof UTF8String text && PLAIN.matcher(text.toString()).matches()) {
      return "'" + text + "'";
    }
    return null;
  }
}
