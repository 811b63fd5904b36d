package io.penstock.spark;

import java.lang.reflect.Method;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.CachedData;
import scala.collection.immutable.IndexedSeq;
import scala.jdk.javaapi.CollectionConverters;

/** What Spark has cached of a lake's tables, each at the commit at which it was cached. */
final class CachedTables {
  private CachedTables() {}

  /** Free what is cached of a table, at whatever commit, and of queries of it. */
  static void release(SparkSession session, LogicalPlan present, List<String> origins) {
    CacheManager manager = session.sharedState().cacheManager();
    List<String> keys = origins.stream().map(CachedTables::key).toList();
    for (CachedData cached : all(manager)) {
      if (TableFiles.origins(cached.plan()).stream().map(CachedTables::key).anyMatch(keys::contains)) {
        manager.uncacheQuery(session, cached.plan(), true);
      }
    }
    manager.uncacheQuery(session, present, true);
  }

  private static String key(String origin) {
    return origin.substring(0, origin.lastIndexOf('@'));
  }

  /** Spark shows them to nobody; where it has them in another way, only the present commit is known. */
  private static List<CachedData> all(CacheManager manager) {
    try {
      Method method = CacheManager.class.getDeclaredMethod("cachedData");
      method.setAccessible(true);
      @SuppressWarnings("unchecked")
      IndexedSeq<CachedData> found = (IndexedSeq<CachedData>) method.invoke(manager);
      return CollectionConverters.asJava(found);
    } catch (ReflectiveOperationException another) {
      return List.of();
    }
  }
}
