package io.penstock.spark;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import scala.Product;
import scala.jdk.javaapi.CollectionConverters;

/** Copies of Spark's values with one part changed, whatever other parts they have in this Spark. */
final class Copies {
  private Copies() {}

  /** A part of a value; null if it has none of that name in this Spark. */
  static Object part(Product whole, String part) {
    int at = whole.productElementNames().indexOf(part);
    return at < 0 ? null : whole.productElement(at);
  }

  /** A copy; {@code ReflectiveOperationException} in a Spark where it is made in another way. */
  static <T extends Product> T with(T whole, String part, Object value) throws ReflectiveOperationException {
    List<Object> parts = new ArrayList<>(CollectionConverters.asJava(whole.productIterator().toList()));
    int at = whole.productElementNames().indexOf(part);
    if (at < 0) {
      throw new NoSuchFieldException(part);
    }
    parts.set(at, value);
    try {
      @SuppressWarnings("unchecked")
      T made = (T) whole.getClass().getConstructors()[0].newInstance(parts.toArray());
      return made;
    } catch (IllegalArgumentException another) {
      throw new InvocationTargetException(another);
    }
  }
}
