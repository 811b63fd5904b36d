package io.penstock.spark;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Makes files of a local disk survive a power cut, as they must before a commit names them. Other storage has done so
 * when it closed them.
 */
final class Durable {
  /** How many are waited for together: a disk writes down many in the time of one. */
  private static final int AT_ONCE = 8;

  private final Path root;
  private final List<java.nio.file.Path> files = new ArrayList<>();
  private final Set<java.nio.file.Path> directories = new LinkedHashSet<>();

  Durable(Path root) {
    this.root = root;
  }

  /** Have the root, and what is above it, be there after a power cut too: the others see to what is below it alone. */
  void makeRoot(FileSystem storage) throws IOException {
    if (!"file".equals(storage.getUri().getScheme())) {
      return;
    }
    List<java.nio.file.Path> grown = new ArrayList<>();
    for (java.nio.file.Path one = local(root); one != null && !Files.exists(one); one = one.getParent()) {
      grown.add(one.getParent());
    }
    Files.createDirectories(local(root));
    for (java.nio.file.Path directory : grown) {
      sync(directory, StandardOpenOption.READ);
    }
  }

  /** A file to be kept, once {@link #finish} has returned. */
  void keep(FileSystem storage, Path file) {
    if (!"file".equals(storage.getUri().getScheme())) {
      return;
    }
    files.add(local(file));
    java.nio.file.Path top = local(root);
    java.nio.file.Path directory = local(file).getParent();
    while (directory.startsWith(top) && directories.add(directory)) {
      directory = directory.getParent();
    }
  }

  /** All files that were named survive a power cut, and so do the directories that they are in. */
  void finish() throws IOException {
    syncAll(files, StandardOpenOption.WRITE);
    syncAll(directories, StandardOpenOption.READ);
  }

  private static void syncAll(Collection<java.nio.file.Path> paths, StandardOpenOption how) throws IOException {
    if (paths.isEmpty()) {
      return;
    }
    ExecutorService threads = Executors.newFixedThreadPool(Math.min(AT_ONCE, paths.size()));
    try {
      List<Future<Void>> synced = new ArrayList<>();
      for (java.nio.file.Path path : paths) {
        synced.add(
            threads.submit(
                () -> {
                  sync(path, how);
                  return null;
                }));
      }
      for (Future<Void> one : synced) {
        one.get();
      }
    } catch (ExecutionException problem) {
      throw new IOException("files cannot be made durable", problem.getCause());
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("stopped while files were made durable");
    } finally {
      threads.shutdownNow();
    }
  }

  private static java.nio.file.Path local(Path path) {
    return java.nio.file.Path.of(path.toUri().getPath());
  }

  private static void sync(java.nio.file.Path path, StandardOpenOption how) throws IOException {
    try (FileChannel channel = FileChannel.open(path, how)) {
      channel.force(true);
    }
  }
}
