package io.penstock.spark;

import java.util.Map;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** A text that is no statement. Of what a parser raises, only this error reaches a program as it is. */
final class StatementRefused extends ParseException {
  private static final long serialVersionUID = 1L;
  private static final String CONDITION = "PARSE_SYNTAX_ERROR";
  private static final Map<String, String> NOTHING = Map.of("error", "", "hint", "");

  private final String message;

  StatementRefused(String message) {
    super(Option.empty(), CurrentOrigin.get(), CONDITION, Map$.MODULE$.from(CollectionConverters.asScala(NOTHING)));
    this.message = "[" + CONDITION + "] " + message;
  }

  @Override
  public String getMessage() {
    return message;
  }
}
