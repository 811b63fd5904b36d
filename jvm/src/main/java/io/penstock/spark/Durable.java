package io.penstock.spark;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Makes files of a local disk survive a power cut, as they must before a commit names them. Other storage has done so
 * when it closed them.
 */
final class Durable {
  private final Path root;
  private final Set<java.nio.file.Path> directories = new LinkedHashSet<>();

  Durable(Path root) {
    this.root = root;
  }

  void keep(FileSystem storage, Path file) throws IOException {
    if (!"file".equals(storage.getUri().getScheme())) {
      return;
    }
    sync(local(file), StandardOpenOption.WRITE);
    java.nio.file.Path top = local(root);
    java.nio.file.Path directory = local(file).getParent();
    while (directory.startsWith(top) && directories.add(directory)) {
      directory = directory.getParent();
    }
  }

  void keepDirectories() throws IOException {
    for (java.nio.file.Path directory : directories) {
      sync(directory, StandardOpenOption.READ);
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
