package io.penstock.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.zip.GZIPOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The delayed commit protocol: tasks write files straight to their final names, and the driver is told which.
 *
 * <p>A name is given to one attempt of one task only, so attempts never meet. Nothing that is written exists for
 * readers: whoever started the job takes the list of the files that were committed ({@link #take}) and commits it
 * to the lake. A write without the option {@value #JOB} is none of ours, and Spark's own protocol does it.
 */
public final class CommitProtocol extends SQLHadoopMapReduceCommitProtocol {
  /** The id under which the files of a job are kept until they are taken. */
  public static final String JOB = "penstock.job";
  /** A directory below the table that all files of the job go into. */
  public static final String SUBDIRECTORY = "penstock.subdirectory";
  /** How long a random directory is that files go into instead of that of their partition. */
  public static final String PREFIX_LENGTH = "penstock.prefix.length";
  /** Whether the first directory of each file tells if its rows are of the change data feed. */
  public static final String HAS_CHANGES = "penstock.changes";
  /** The columns whose bounds are told, as JSON: a list of paths, each a list of names. */
  public static final String COLUMNS = "penstock.columns";

  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger(CommitProtocol.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String CHANGES = "__is_cdc=true";
  private static final String CHANGES_DIRECTORY = "_change_data";
  private static final String LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  private static final Map<String, List<byte[]>> COMMITTED = new ConcurrentHashMap<>();

  private final String root;
  private transient List<NewFile> files;
  private transient List<byte[]> told;

  /** Made by Spark, for every write of a session that names this class. */
  public CommitProtocol(String jobId, String path, boolean dynamicPartitionOverwrite) {
    super(jobId, path, dynamicPartitionOverwrite);
    root = path;
  }

  /**
   * The files that a job committed: lines of JSON, compressed. They are given once.
   *
   * @return null if no job of this id has been committed since
   */
  public static byte[] take(String job) throws IOException {
    List<byte[]> lines = COMMITTED.remove(job);
    if (lines == null) {
      return null;
    }
    ByteArrayOutputStream packed = new ByteArrayOutputStream();
    try (GZIPOutputStream out = new GZIPOutputStream(packed)) {
      for (byte[] line : lines) {
        out.write(line);
      }
    }
    return packed.toByteArray();
  }

  @Override
  public void setupJob(JobContext context) {
    if (!isOurs(context)) {
      super.setupJob(context);
      return;
    }
    LOG.debug("job {}: writing below {}", job(context), root);
    told = new ArrayList<>();
  }

  @Override
  public void setupTask(TaskAttemptContext context) {
    if (!isOurs(context)) {
      super.setupTask(context);
      return;
    }
    LOG.debug("job {}: task {} begins", job(context), context.getTaskAttemptID());
    files = new ArrayList<>();
  }

  @Override
  public String newTaskTempFile(TaskAttemptContext context, Option<String> directory, FileNameSpec spec) {
    if (!isOurs(context)) {
      return super.newTaskTempFile(context, directory, spec);
    }
    NewFile file = name(context, directory.isEmpty() ? "" : directory.get(), spec);
    files.add(file);
    LOG.debug("job {}: task {} writes {}", job(context), context.getTaskAttemptID(), file.name);
    return file.path(root).toString();
  }

  @Override
  public String newTaskTempFileAbsPath(TaskAttemptContext context, String directory, FileNameSpec spec) {
    if (!isOurs(context)) {
      return super.newTaskTempFileAbsPath(context, directory, spec);
    }
    throw new UnsupportedOperationException(
        this + " does not support adding files with an absolute path (" + directory + ")");
  }

  @Override
  public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
    if (!isOurs(context)) {
      return super.commitTask(context);
    }
    try {
      byte[] lines = lines(context.getConfiguration());
      LOG.debug("job {}: task {} commits {} files", job(context), context.getTaskAttemptID(), files.size());
      return new FileCommitProtocol.TaskCommitMessage(lines);
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }

  @Override
  public void onTaskCommit(FileCommitProtocol.TaskCommitMessage message) {
    if (message.obj() instanceof byte[] lines) {
      told.add(lines);
      return;
    }
    super.onTaskCommit(message);
  }

  @Override
  public void commitJob(JobContext context, Seq<FileCommitProtocol.TaskCommitMessage> messages) {
    if (!isOurs(context)) {
      super.commitJob(context, messages);
      return;
    }
    List<byte[]> lines = new ArrayList<>();
    for (FileCommitProtocol.TaskCommitMessage message : CollectionConverters.asJava(messages)) {
      lines.add((byte[]) message.obj());
    }
    COMMITTED.put(job(context), lines);
    LOG.debug("job {}: {} tasks have committed", job(context), lines.size());
  }

  /** Nobody was told of the files of committed tasks, so they are removed. A task that still runs is not waited for. */
  @Override
  public void abortJob(JobContext context) {
    if (!isOurs(context)) {
      super.abortJob(context);
      return;
    }
    LOG.debug("job {}: aborted", job(context));
    COMMITTED.remove(job(context));
    for (byte[] lines : told == null ? List.<byte[]>of() : told) {
      try (var read = JSON.readerFor(WrittenFile.class).<WrittenFile>readValues(lines)) {
        while (read.hasNextValue()) {
          remove(read.nextValue().name(), context.getConfiguration());
        }
      } catch (IOException problem) {
        LOG.debug("job {}: files were left behind", job(context), problem);
      }
    }
  }

  /** The names of a task that failed were told nobody, so its files are removed. */
  @Override
  public void abortTask(TaskAttemptContext context) {
    if (!isOurs(context)) {
      super.abortTask(context);
      return;
    }
    LOG.debug("job {}: task {} is aborted", job(context), context.getTaskAttemptID());
    for (NewFile file : files == null ? List.<NewFile>of() : files) {
      remove(file.name, context.getConfiguration());
    }
  }

  private byte[] lines(Configuration configuration) throws IOException {
    String columns = configuration.getRaw(COLUMNS);
    String[][] paths = columns == null ? new String[0][] : JSON.readValue(columns, String[][].class);
    Durable durable = new Durable(new Path(root));
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    for (NewFile file : files) {
      Path path = file.path(root);
      FileSystem storage = path.getFileSystem(configuration);
      FileStatus status = storage.getFileStatus(path);
      durable.keep(storage, path);
      Footer footer = Footer.read(configuration, status, paths);
      out.write(
          JSON.writeValueAsBytes(
              new WrittenFile(
                  file.name, file.partition, file.isChange, status.getLen(), status.getModificationTime(),
                  footer.rows(), footer.columns())));
      out.write('\n');
    }
    durable.keepDirectories();
    return out.toByteArray();
  }

  private static NewFile name(TaskAttemptContext context, String directory, FileNameSpec spec) {
    boolean hasChanges = context.getConfiguration().getBoolean(HAS_CHANGES, false);
    boolean isChange = hasChanges && isBelow(directory, CHANGES);
    String partition = hasChanges ? afterFirst(directory) : directory;
    int length = context.getConfiguration().getInt(PREFIX_LENGTH, 0);
    String folder = length > 0 ? randomName(length) : partition;
    int split = context.getTaskAttemptID().getTaskID().getId();
    String file =
        String.format(
            Locale.ROOT, "%s%s-%05d-%s%s", spec.prefix(), isChange ? "cdc" : "part", split, UUID.randomUUID(), spec.suffix());
    String below = join(isChange ? CHANGES_DIRECTORY : "", join(folder, file));
    return new NewFile(join(subdirectory(context), below), partition, isChange);
  }

  private void remove(String name, Configuration configuration) {
    Path path = new Path(root, name);
    try {
      path.getFileSystem(configuration).delete(path, false);
    } catch (IOException problem) {
      LOG.debug("{} was left behind", path, problem);
    }
  }

  private static boolean isOurs(JobContext context) {
    return job(context) != null;
  }

  private static String job(JobContext context) {
    return context.getConfiguration().getRaw(JOB);
  }

  private static String subdirectory(JobContext context) {
    String given = context.getConfiguration().getRaw(SUBDIRECTORY);
    return given == null ? "" : given;
  }

  private static boolean isBelow(String directory, String first) {
    return directory.equals(first) || directory.startsWith(first + "/");
  }

  private static String afterFirst(String directory) {
    int slash = directory.indexOf('/');
    return slash < 0 ? "" : directory.substring(slash + 1);
  }

  private static String join(String folder, String name) {
    return folder.isEmpty() ? name : folder + "/" + name;
  }

  private static String randomName(int length) {
    StringBuilder name = new StringBuilder(length);
    for (int at = 0; at < length; at++) {
      name.append(LETTERS.charAt(ThreadLocalRandom.current().nextInt(LETTERS.length())));
    }
    return name.toString();
  }

  /** A file as a task is about to write it: below the root, and the partition as Spark named its directory. */
  private record NewFile(String name, String partition, boolean isChange) {
    Path path(String root) {
      return new Path(root, name);
    }
  }
}
