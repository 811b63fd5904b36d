package io.penstock.spark;

import java.lang.reflect.Field;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Which session a catalogue is of.
 *
 * <p>Spark makes a catalogue for each session, and tells it settings of whichever session the thread has active. Where
 * a program uses two sessions in turn that is another one, perhaps of another lake.
 */
final class CatalogSessions {
  private static final Set<org.apache.spark.sql.classic.SparkSession> SESSIONS =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  private CatalogSessions() {}

  /** Called for every session, when Spark makes its rules. */
  static void add(org.apache.spark.sql.classic.SparkSession session) {
    SESSIONS.add(session);
  }

  /** The session that has a catalogue; null if none is known to have it. */
  static org.apache.spark.sql.classic.SparkSession of(CatalogPlugin catalog) {
    synchronized (SESSIONS) {
      for (var session : SESSIONS) {
        if (made(session.sessionState().catalogManager()).containsValue(catalog)) {
          return session;
        }
      }
    }
    return null;
  }

  /** The catalogues that there are: to ask the manager for one would make it one. */
  private static Map<?, ?> made(Object manager) {
    for (Class<?> one = manager.getClass(); one != null; one = one.getSuperclass()) {
      try {
        Field field = one.getDeclaredField("catalogs");
        field.setAccessible(true);
        return CollectionConverters.asJava((scala.collection.Map<?, ?>) field.get(manager));
      } catch (ReflectiveOperationException elsewhere) {
        // in the class above, or in a Spark that is not known yet
      }
    }
    return Map.of();
  }
}
