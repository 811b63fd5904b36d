package io.penstock.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.schema.GroupType;
import org.apache.parquet.schema.LogicalTypeAnnotation;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.Type;
import org.apache.spark.sql.execution.datasources.parquet.ParquetWriteSupport;

/**
 * Spark's writer of Parquet, whose files have ids of elements of arrays, and of keys and values of maps, too.
 *
 * <p>Spark notes ids of the fields of structs. Those of elements come with the option {@value #IDS}; all rows are
 * written by Spark.
 */
public final class NumberedElements extends ParquetWriteSupport {
  /** Ids of elements by their paths, as JSON: a list of objects with a path and an id. */
  public static final String IDS = "penstock.element.ids";

  private static final ObjectMapper JSON = new ObjectMapper();

  /** An element of an array, or a key or value of a map, by names in files, and the id that it has there. */
  public record Element(List<String> path, int id) {}

  /** Have a task write ids of elements, if its job has some. */
  static void writeFor(Configuration configuration) {
    if (configuration.getRaw(IDS) != null) {
      configuration.setClass(ParquetOutputFormat.WRITE_SUPPORT_CLASS, NumberedElements.class, WriteSupport.class);
    }
  }

  @Override
  public WriteSupport.WriteContext init(Configuration configuration) {
    WriteSupport.WriteContext begun = super.init(configuration);
    Map<List<String>, Integer> ids = new HashMap<>();
    try {
      for (Element element : JSON.readValue(configuration.getRaw(IDS), Element[].class)) {
        ids.put(element.path, element.id);
      }
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
    MessageType schema = begun.getSchema();
    MessageType numbered = new MessageType(schema.getName(), numberAll(schema, List.of(), ids));
    return new WriteSupport.WriteContext(numbered, begun.getExtraMetaData());
  }

  private static List<Type> numberAll(GroupType group, List<String> path, Map<List<String>, Integer> ids) {
    List<Type> fields = new ArrayList<>();
    for (Type field : group.getFields()) {
      fields.add(number(field, below(path, field.getName()), ids));
    }
    return fields;
  }

  private static Type number(Type type, List<String> path, Map<List<String>, Integer> ids) {
    Integer id = ids.get(path);
    Type numbered = id == null ? type : type.withId(id);
    if (type.isPrimitive()) {
      return numbered;
    }
    GroupType group = numbered.asGroupType();
    if (!isArrayOrMap(group)) {
      return group.withNewFields(numberAll(group, path, ids));
    }
    GroupType repeated = group.getType(0).asGroupType(); // around the elements, and no part of their paths
    return group.withNewFields(repeated.withNewFields(numberAll(repeated, path, ids)));
  }

  private static boolean isArrayOrMap(GroupType group) {
    LogicalTypeAnnotation kind = group.getLogicalTypeAnnotation();
    return kind instanceof LogicalTypeAnnotation.ListLogicalTypeAnnotation
        || kind instanceof LogicalTypeAnnotation.MapLogicalTypeAnnotation;
  }

  private static List<String> below(List<String> path, String name) {
    List<String> longer = new ArrayList<>(path);
    longer.add(name);
    return longer;
  }
}
