import com.amazonaws.services.dynamodbv2.local.main.ServerRunner;
import com.amazonaws.services.dynamodbv2.local.server.DynamoDBProxyServer;
import de.bwaldvogel.mongo.MongoDatabase;
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.CollectionOptions;
import de.bwaldvogel.mongo.backend.CursorRegistry;
import de.bwaldvogel.mongo.backend.QueryParameters;
import de.bwaldvogel.mongo.backend.QueryResult;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.backend.memory.MemoryCollection;
import de.bwaldvogel.mongo.backend.memory.MemoryDatabase;
import de.bwaldvogel.mongo.bson.Document;
import java.net.InetSocketAddress;
import java.util.List;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Starts one of the servers that come as libraries, on the loopback address: `Launcher dynamodb|mongodb PORT`. */
public final class Launcher {
    private static final String HOST = "127.0.0.1";

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        if (arguments[0].equals("dynamodb")) {
            dynamodb(port);
        } else {
            mongodb(port);
        }
    }

    private static void mongodb(int port) {
        MemoryBackend backend = new MemoryBackend() {
            @Override
            public MemoryDatabase openOrCreateDatabase(String name) {
                return new Database(name, getCursorRegistry());
            }
        };
        // It says 4.0, which today's clients refuse. What they do differently with 4.4 is none of ours.
        backend.version(new MongoVersion() {
            @Override
            public List<Integer> getVersionArray() {
                return List.of(4, 4, 0);
            }

            @Override
            public int getWireVersion() {
                return 9;
            }
        });
        new MongoServer(backend).bind(new InetSocketAddress(HOST, port));
    }

    /** A database whose queries answer with documents as they were at one instant, as MongoDB's do. */
    private static final class Database extends MemoryDatabase {
        Database(String name, CursorRegistry cursors) {
            super(name, cursors);
        }

        @Override
        protected MemoryCollection openOrCreateCollection(String name, CollectionOptions options) {
            return new Collection(this, name, options, cursorRegistry);
        }
    }

    /**
     * Updates change documents in place, and answers are encoded once the lock is released: a document could be read
     * with its old value and its new version.
     */
    private static final class Collection extends MemoryCollection {
        Collection(MongoDatabase database, String name, CollectionOptions options, CursorRegistry cursors) {
            super(database, name, options, cursors);
        }

        @Override
        public synchronized QueryResult handleQuery(QueryParameters query) {
            QueryResult result = super.handleQuery(query);
            List<Document> copies = result.collectDocuments().stream().map(Document::cloneDeeply).toList();
            return new QueryResult(copies, result.getCursorId());
        }
    }

    private static void dynamodb(int port) throws Exception {
        DynamoDBProxyServer server = ServerRunner.createServerFromCommandLineArgs(
            new String[] {"-inMemory", "-sharedDb", "-disableTelemetry", "-port", String.valueOf(port)});
        // It would listen on every address of the machine and has no option against it.
        var field = DynamoDBProxyServer.class.getDeclaredField("server");
        field.setAccessible(true);
        ((ServerConnector) ((Server) field.get(server)).getConnectors()[0]).setHost(HOST);
        server.start();
        server.join();
    }
}
