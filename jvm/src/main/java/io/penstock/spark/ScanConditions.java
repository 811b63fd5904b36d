package io.penstock.spark;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NaNvl;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The filters of a scan as values that can be sent: columns by the names that files have for them, literals with their
 * types. What is not known here is told as unknown. Which files the filters leave out is decided elsewhere.
 */
final class ScanConditions {
  private static final Map<String, Object> UNKNOWN = Map.of("kind", "unknown");
  private static final Map<String, Object> NOT = Map.of("kind", "not", "parts", 1);

  private ScanConditions() {}

  /** The conditions that every row fulfils that a scan is asked for. What joins others comes after them. */
  static List<Map<String, Object>> told(Seq<Expression> filters) {
    List<Map<String, Object>> found = new ArrayList<>();
    for (Expression one : CollectionConverters.asJava(filters)) {
      List<Map<String, Object>> parts = new ArrayList<>();
      collect(one, parts);
      if (parts.stream().anyMatch(part -> part.containsKey("column"))) {
        found.addAll(parts);
      }
    }
    return found;
  }

  private static void collect(Expression one, List<Map<String, Object>> found) {
    if (one instanceof And both) {
      collect(both.left(), found);
      collect(both.right(), found);
      found.add(Map.of("kind", "and", "parts", 2));
    } else if (one instanceof Or either) {
      collect(either.left(), found);
      collect(either.right(), found);
      found.add(Map.of("kind", "or", "parts", 2));
    } else if (one instanceof Not not) {
      collect(not.child(), found);
      found.add(NOT);
    } else if (one instanceof IsNotNull is) {
      found.add(about("is_null", "", is.child(), List.of()));
      found.add(NOT);
    } else {
      found.add(plain(one));
    }
  }

  private static Map<String, Object> plain(Expression one) {
    if (one instanceof IsNull is) {
      return about("is_null", "", is.child(), List.of());
    }
    if (one instanceof BinaryComparison compared) {
      return compared.left() instanceof Literal
          ? about("compare", sign(compared, true), compared.right(), List.of(compared.left()))
          : about("compare", sign(compared, false), compared.left(), List.of(compared.right()));
    }
    if (one instanceof In in) {
      return about("in", "", in.value(), CollectionConverters.asJava(in.list()));
    }
    if (one instanceof InSet in) {
      List<Expression> values = new ArrayList<>();
      in.hset().foreach(value -> values.add(new Literal(value, in.child().dataType())));
      return about("in", "", in.child(), values);
    }
    if (one instanceof StartsWith starts) {
      return about("starts_with", "", starts.left(), List.of(starts.right()));
    }
    return one.dataType().equals(DataTypes.BooleanType)
        ? about("compare", "=", one, List.of(Literal.TrueLiteral()))
        : UNKNOWN;
  }

  private static String sign(BinaryComparison compared, boolean isTurned) {
    String sign = compared.symbol();
    if (!isTurned || sign.indexOf('=') == 0 || sign.equals("<=>")) {
      return sign.equals("==") ? "=" : sign;
    }
    return (sign.charAt(0) == '<' ? ">" : "<") + sign.substring(1);
  }

  private static Map<String, Object> about(String kind, String sign, Expression subject, List<Expression> literals) {
    List<String> column = new ArrayList<>();
    if (!isColumn(subject, column)) {
      return UNKNOWN;
    }
    List<String> values = new ArrayList<>();
    for (Expression one : literals) {
      if (!(one instanceof Literal literal) || !literal.dataType().equals(subject.dataType())) {
        return UNKNOWN;
      }
      if (literal.value() != null) { // nothing is equal to null
        String value = text(literal.value(), literal.dataType());
        if (value == null) {
          return UNKNOWN;
        }
        values.add(value);
      }
    }
    return Map.of(
        "kind", kind,
        "operator", sign,
        "column", column,
        "type", subject.dataType().typeName(),
        "values", values);
  }

  /** Whether it is a column or a part of one, whose name is added then. */
  private static boolean isColumn(Expression one, List<String> name) {
    if (one instanceof AttributeReference column) {
      name.add(column.name());
      return true;
    }
    if (one instanceof GetStructField field && isColumn(field.child(), name)) {
      name.add(field.extractFieldName());
      return true;
    }
    // Real numbers are read so, to keep Spark from comparing them with the bounds that the files themselves note.
    return one instanceof NaNvl guard && guard.left().equals(guard.right()) && isColumn(guard.left(), name);
  }

  /** A value as text: numbers as they are spelled, days and microseconds since 1970 as numbers; null for others. */
  private static String text(Object value, DataType type) {
    if (value instanceof UTF8String text) {
      boolean isPlain = type.equals(DataTypes.StringType) && UTF8String.fromString(text.toString()).equals(text);
      return isPlain ? text.toString() : null;
    }
    if (value instanceof Decimal number) {
      BigDecimal exact = number.toJavaBigDecimal();
      return exact.toPlainString();
    }
    return value instanceof Number || value instanceof Boolean ? value.toString() : null;
  }
}
