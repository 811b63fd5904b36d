package io.penstock.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * The files of a job that are too many for a request: a list of them lies in their folder, as a commit takes it, and
 * the request has what there is to decide by.
 */
final class FileList {
  // MessagePack's marks, of those that hold any length
  private static final int MAP_OF_FOUR = 0x84;
  private static final int ARRAY = 0xdd;
  private static final int TEXT = 0xdb;
  private static final int NUMBER = 0xcf;

  private FileList() {}

  /** Write the list, for good; returns what is told instead of the files. */
  static Map<String, Object> write(List<WrittenFile> files, Path folder, Configuration configuration)
      throws IOException {
    byte[] list = packed(files);
    Path path = new Path(folder, UUID.randomUUID().toString().replace("-", "") + ".list");
    FileSystem storage = path.getFileSystem(configuration);
    try (OutputStream out = storage.create(path, false)) {
      out.write(list);
    }
    Durable durable = new Durable(folder);
    durable.keep(storage, path);
    durable.finish();
    TreeSet<String> partitions = new TreeSet<>();
    long bytes = 0;
    for (WrittenFile file : files) {
      partitions.add(file.partition());
      bytes += file.size();
    }
    return Map.of(
        "name", path.getName(),
        "size", list.length,
        "sha256", sha256(list),
        "files", files.size(),
        "bytes", bytes,
        "partitions", partitions);
  }

  private static byte[] packed(List<WrittenFile> files) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    out.writeByte(ARRAY);
    out.writeInt(files.size());
    for (WrittenFile file : files) {
      out.writeByte(MAP_OF_FOUR);
      text(out, "path");
      text(out, file.name());
      text(out, "size");
      number(out, file.size());
      text(out, "modified_us");
      number(out, file.modified() * 1000);
      text(out, "checksum");
      text(out, file.etag().isEmpty() ? "" : "etag:" + file.etag());
    }
    return bytes.toByteArray();
  }

  private static void text(DataOutputStream out, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    out.writeByte(TEXT);
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  private static void number(DataOutputStream out, long number) throws IOException {
    out.writeByte(NUMBER);
    out.writeLong(number);
  }

  private static String sha256(byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
