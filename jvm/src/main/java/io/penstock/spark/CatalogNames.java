package io.penstock.spark;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;

/**
 * Names of catalogues and tables as a session knows them.
 *
 * <p>Spark's manager of catalogues is a class in some releases and an interface in others. Code that is compiled for the
 * one cannot call the other, so its methods are looked up when they are called.
 */
final class CatalogNames {
  private CatalogNames() {}

  /** The catalogue that names without one are looked up in. */
  static CatalogPlugin current(SparkSession session) {
    return (CatalogPlugin) asked(session, "currentCatalog");
  }

  /** The namespace of names without one. */
  static List<String> currentNamespace(SparkSession session) {
    return List.of((String[]) asked(session, "currentNamespace"));
  }

  static boolean isCatalog(SparkSession session, String name) {
    return (boolean) asked(session, "isCatalogRegistered", name);
  }

  /** The lake whose catalogue a name of a table or view belongs to; null if it is none. */
  static PenstockCatalog lakeOf(SparkSession session, List<String> name) {
    return lakeOf(session, name, hasCatalog(session, name));
  }

  /** The same for the name of a namespace, which may be that of the catalogue. */
  static PenstockCatalog lakeOfNamespace(SparkSession session, List<String> name) {
    return lakeOf(session, name, !name.isEmpty() && isCatalog(session, name.get(0)));
  }

  private static PenstockCatalog lakeOf(SparkSession session, List<String> name, boolean hasCatalog) {
    Object found = hasCatalog ? asked(session, "catalog", name.get(0)) : current(session);
    return found instanceof PenstockCatalog catalog ? catalog : null;
  }

  private static boolean hasCatalog(SparkSession session, List<String> name) {
    return name.size() > 1 && isCatalog(session, name.get(0));
  }

  /** What a catalogue calls the table that a name stands for. */
  static Identifier identifier(SparkSession session, List<String> name) {
    boolean hasCatalog = hasCatalog(session, name);
    List<String> parts = new ArrayList<>(name.subList(hasCatalog ? 1 : 0, name.size()));
    if (parts.size() == 1 && !hasCatalog) {
      parts.addAll(0, currentNamespace(session));
    }
    String[] namespace = parts.subList(0, parts.size() - 1).toArray(new String[0]);
    return Identifier.of(namespace, parts.get(parts.size() - 1));
  }

  /** The table of a lake that a name stands for; null if it is none. */
  static LakeTable find(SparkSession session, List<String> name) {
    PenstockCatalog catalog = lakeOf(session, name);
    if (catalog == null) {
      return null;
    }
    try {
      return (LakeTable) catalog.loadTable(identifier(session, name)); // of a view it says that there is no table
    } catch (NoSuchTableException absent) {
      return null; // Spark says so
    }
  }

  private static Object asked(SparkSession session, String method, String... arguments) {
    Class<?>[] types = arguments.length == 0 ? new Class<?>[0] : new Class<?>[] {String.class};
    try {
      return CatalogManager.class
          .getMethod(method, types)
          .invoke(session.sessionState().catalogManager(), (Object[]) arguments);
    } catch (InvocationTargetException problem) {
      if (problem.getCause() instanceof RuntimeException known) {
        throw known;
      }
      throw new IllegalStateException(problem.getCause());
    } catch (ReflectiveOperationException another) {
      throw new IllegalStateException("this release of Spark has no method " + method + " of its catalogues", another);
    }
  }
}
