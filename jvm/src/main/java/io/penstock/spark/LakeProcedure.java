package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A procedure of a catalogue: what it takes and gives is told by who carries it out. */
final class LakeProcedure implements UnboundProcedure, BoundProcedure {
  private final PenstockCatalog catalog;
  private final String name;
  private final String description;
  private final String step;
  private final List<ProcedureParameter> parameters = new ArrayList<>();
  private final StructType columns;

  LakeProcedure(PenstockCatalog catalog, String name, JsonNode facts) {
    this.catalog = catalog;
    this.name = name;
    description = facts.path("description").asText();
    step = facts.path("step").asText("call");
    columns = StructType.fromDDL(facts.path("columns").asText());
    for (JsonNode one : facts.path("parameters")) {
      var built = ProcedureParameter.in(one.path("name").asText(), DataType.fromDDL(one.path("type").asText()));
      if (one.hasNonNull("default")) {
        built.defaultValue(one.get("default").asText());
      }
      parameters.add(built.build());
    }
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String description() {
    return description;
  }

  @Override
  public BoundProcedure bind(StructType inputType) {
    return this;
  }

  @Override
  public ProcedureParameter[] parameters() {
    return parameters.toArray(new ProcedureParameter[0]);
  }

  /** It changes something, or shows what others may have changed: it is called each time. */
  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public Iterator<Scan> call(InternalRow input) {
    Map<String, Object> arguments = new HashMap<>();
    for (int at = 0; at < parameters.size(); at++) {
      DataType type = parameters.get(at).dataType();
      Object value = input.isNullAt(at) ? null : input.get(at, type);
      arguments.put(parameters.get(at).name(), plain(value));
    }
    JsonNode answer = catalog.ask(step, Map.of("procedure", name, "arguments", arguments));
    List<InternalRow> rows = new ArrayList<>();
    answer.path("rows").forEach(one -> rows.add(row(one)));
    if (columns.isEmpty()) {
      return List.<Scan>of().iterator();
    }
    return List.<Scan>of(new Rows(columns, rows.toArray(new InternalRow[0]))).iterator();
  }

  /** As JSON has it: a text, a list of texts, or anything else as it is. */
  private static Object plain(Object value) {
    return value instanceof UTF8String text
        ? text.toString()
        : value instanceof ArrayData list
            ? Stream.of(list.<Object>toObjectArray(DataTypes.StringType)).map(Object::toString).toList()
            : value;
  }

  private InternalRow row(JsonNode values) {
    Object[] row = new Object[columns.length()];
    for (int at = 0; at < row.length; at++) {
      JsonNode value = values.get(at);
      DataType type = columns.fields()[at].dataType();
      if (value.isNull()) {
        row[at] = null;
      } else if (type.equals(DataTypes.StringType)) {
        row[at] = UTF8String.fromString(value.asText());
      } else if (type instanceof MapType) {
        row[at] = texts(value);
      } else if (type.equals(DataTypes.BooleanType)) {
        row[at] = value.asBoolean();
      } else {
        row[at] = value.asLong(); // a long, or the microseconds of a timestamp
      }
    }
    return new GenericInternalRow(row);
  }

  private static MapData texts(JsonNode object) {
    List<Object> names = new ArrayList<>();
    List<Object> values = new ArrayList<>();
    for (var one : object.properties()) {
      names.add(UTF8String.fromString(one.getKey()));
      values.add(one.getValue().isNull() ? null : UTF8String.fromString(one.getValue().asText()));
    }
    return new ArrayBasedMapData(new GenericArrayData(names.toArray()), new GenericArrayData(values.toArray()));
  }

  private record Rows(StructType readSchema, InternalRow[] rows) implements LocalScan {}
}
