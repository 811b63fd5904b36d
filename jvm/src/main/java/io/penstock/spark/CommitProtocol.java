package io.penstock.spark;

import com.fasterxml.jackson.databind.JsonNode;
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
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The delayed commit protocol: tasks write files straight to their final names, and the driver is told which.
 *
 * <p>A name is given to one attempt of one task only, so attempts never meet. Nothing that is written exists for
 * readers: whoever started the job with the option {@value #ATTEMPT} takes the list of the files that were committed
 * ({@link #take}) and commits it to the lake. Where the option {@value #TABLE}, or the path, names a table, this class
 * hands the list to whoever decides ({@link JobDriver}) and waits for the commit. Any other write is none of ours, and
 * Spark's own protocol does it.
 */
public final class CommitProtocol extends SQLHadoopMapReduceCommitProtocol {
  /** How the names of all options begin that are for a lake. */
  private static final String OPTION = "penstock.";
  /** The id of an attempt of a job, under which its files are kept until they are taken. */
  public static final String ATTEMPT = "penstock.attempt";
  /** The table of the lake that a write is for, whatever its path. */
  public static final String TABLE = "penstock.table";
  /** A directory below the table that all files of the job go into. */
  public static final String SUBDIRECTORY = "penstock.subdirectory";
  /** How long a random directory is that files go into instead of that of their partition. */
  public static final String PREFIX_LENGTH = "penstock.prefix.length";
  /** Whether the first directory of each file tells if its rows are of the change data feed. */
  public static final String HAS_CHANGES = "penstock.changes";
  /** The columns whose bounds are told, as JSON: a list of paths, each a list of names. */
  public static final String COLUMNS = "penstock.columns";
  /** Whether the files are Parquet, and their footers are read; true unless told otherwise, or for a table's path. */
  public static final String FOOTERS = "penstock.footers";

  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger(CommitProtocol.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String CHANGES = "__is_cdc=true";
  private static final String CHANGES_DIRECTORY = "_change_data";
  private static final String LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  private static final Map<String, List<byte[]>> COMMITTED = new ConcurrentHashMap<>();

  private String root;
  /** Of a write that the session's code began, once it has: below the root. Tasks get it with this object. */
  private String folder;
  /** The rows of its tasks, each task once; complete when the job commits. */
  private LongAccumulator rows;

  private transient SessionJob session;
  private transient List<NewFile> files;
  private transient List<byte[]> told;

  /** Made by Spark, for every write of a session that names this class. */
  public CommitProtocol(String jobId, String path, boolean dynamicPartitionOverwrite) {
    super(jobId, path, dynamicPartitionOverwrite);
    root = path;
    session = SessionJob.of(jobId, path);
  }

  /** Whether an option is for a lake. */
  static boolean isOption(String name) {
    return name.regionMatches(true, 0, OPTION, 0, OPTION.length());
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
    if (session != null) {
      begin(context.getConfiguration());
    }
    LOG.debug("job {}: writing below {}", job(context), root);
    told = new ArrayList<>();
  }

  private void begin(Configuration configuration) {
    SessionJob.Place place = session.begin();
    root = place.folder();
    folder = place.subdirectory();
    rows = SparkContext.getOrCreate().longAccumulator();
    try {
      Path made = new Path(root);
      new Durable(made).makeRoot(made.getFileSystem(configuration));
    } catch (IOException problem) {
      session.abort();
      throw new UncheckedIOException(problem);
    }
  }

  @Override
  public void setupTask(TaskAttemptContext context) {
    if (!isOurs(context)) {
      super.setupTask(context);
      return;
    }
    LOG.debug("job {}: task {} begins", job(context), context.getTaskAttemptID());
    files = new ArrayList<>();
    NumberedElements.writeFor(context.getConfiguration());
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
      if (rows != null) {
        countRows();
      }
      LOG.debug("job {}: task {} commits {} files", job(context), context.getTaskAttemptID(), files.size());
      return new FileCommitProtocol.TaskCommitMessage(lines);
    } catch (IOException problem) {
      throw new UncheckedIOException(problem);
    }
  }

  /** Spark has counted them only after the commit of the task, and what a task adds up is told when it ends. */
  private void countRows() {
    LongAccumulator all = rows;
    TaskCompletionListener count = task -> all.add(task.taskMetrics().outputMetrics().recordsWritten());
    TaskContext.get().addTaskCompletionListener(count);
  }

  @Override
  public void onTaskCommit(FileCommitProtocol.TaskCommitMessage message) {
    if (message.obj() instanceof byte[] lines) {
      told.add(lines);
      return;
    }
    super.onTaskCommit(message);
  }

  /** What an overwrite replaces, the commit decides; the path that Spark would empty is none of the table's files'. */
  @Override
  public boolean deleteWithJob(FileSystem storage, Path path, boolean recursive) {
    return session != null || super.deleteWithJob(storage, path, recursive);
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
    if (session == null) {
      COMMITTED.put(job(context), lines);
    } else if (session.commit(lines, rows.value(), context.getConfiguration())) {
      removeTold(context);
    }
    LOG.debug("job {}: {} tasks have committed", job(context), lines.size());
  }

  /**
   * Files are removed that no commit may name. A task that still runs is not waited for.
   */
  @Override
  public void abortJob(JobContext context) {
    if (!isOurs(context)) {
      super.abortJob(context);
      return;
    }
    LOG.debug("job {}: aborted", job(context));
    if (session == null) {
      COMMITTED.remove(job(context));
      removeTold(context);
    } else if (session.abort()) {
      removeFolder(context.getConfiguration());
    }
  }

  /** The folder is the attempt's alone. What a task writes into it that has not heard yet is left for a sweep. */
  private void removeFolder(Configuration configuration) {
    if (folder == null) {
      return; // it has not begun, and the root is still a path of the user's
    }
    Path all = new Path(root);
    try {
      all.getFileSystem(configuration).delete(all, true);
    } catch (IOException problem) {
      LOG.debug("{} was left behind", all, problem);
    }
  }

  private void removeTold(JobContext context) {
    for (byte[] lines : told == null ? List.<byte[]>of() : told) {
      try (var read = JSON.readerFor(JsonNode.class).<JsonNode>readValues(lines)) {
        while (read.hasNextValue()) {
          remove(read.nextValue().path("name").asText(), context.getConfiguration());
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
      out.write(JSON.writeValueAsBytes(told(configuration, file, status, paths)));
      out.write('\n');
    }
    durable.finish();
    return out.toByteArray();
  }

  private WrittenFile told(Configuration configuration, NewFile file, FileStatus status, String[][] paths)
      throws IOException {
    boolean hasFooter = folder == null && configuration.getBoolean(FOOTERS, true);
    Footer footer = hasFooter ? Footer.read(configuration, status, paths) : null;
    return new WrittenFile(
        file.name, file.partition, file.isChange, status.getLen(), status.getModificationTime(), etag(status),
        hasFooter ? footer.rows() : null, hasFooter ? footer.columns() : null);
  }

  /** What the storage says that the file's content is; empty where it says nothing. */
  private static String etag(FileStatus status) {
    String tag = status instanceof EtagSource source ? source.getEtag() : null;
    return tag == null ? "" : tag;
  }

  private NewFile name(TaskAttemptContext context, String directory, FileNameSpec spec) {
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

  private boolean isOurs(JobContext context) {
    return session != null || folder != null || context.getConfiguration().getRaw(ATTEMPT) != null;
  }

  private String job(JobContext context) {
    String given = context.getConfiguration().getRaw(ATTEMPT);
    return given == null ? String.valueOf(context.getJobID()) : given;
  }

  private String subdirectory(JobContext context) {
    String given = folder != null ? folder : context.getConfiguration().getRaw(SUBDIRECTORY);
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
