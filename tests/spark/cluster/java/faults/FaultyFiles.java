package faults;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** The local disk, with {@link Faults} where a task writes a file and looks at what it wrote. */
public final class FaultyFiles extends LocalFileSystem {
  private final Set<Path> closed = ConcurrentHashMap.newKeySet();
  private final Set<Path> counted = ConcurrentHashMap.newKeySet();

  @Override
  public FSDataOutputStream create(
      Path file, FsPermission permission, boolean overwrite, int buffer, short copies, long block, Progressable told)
      throws IOException {
    FSDataOutputStream made = super.create(file, permission, overwrite, buffer, copies, block, told);
    Faults.reach("create");
    return new FSDataOutputStream(new Output(made, file), null);
  }

  /** Spark asks once for its figures, when a file is closed; the commit protocol asks again. */
  @Override
  public FileStatus getFileStatus(Path file) throws IOException {
    if (closed.remove(file)) {
      Faults.reach("closed");
      counted.add(file);
    } else if (counted.remove(file)) {
      Faults.reach("commit");
    }
    return super.getFileStatus(file);
  }

  private final class Output extends FilterOutputStream {
    private final Path file;
    private boolean isClosed;

    Output(OutputStream out, Path file) {
      super(out);
      this.file = file;
    }

    @Override
    public void write(byte[] bytes, int from, int length) throws IOException {
      out.write(bytes, from, length);
    }

    @Override
    public void close() throws IOException {
      if (!isClosed) {
        isClosed = true;
        Faults.reach("close");
        super.close();
        closed.add(file);
      }
    }
  }
}
