import com.amazonaws.services.dynamodbv2.local.main.ServerRunner;
import com.amazonaws.services.dynamodbv2.local.server.DynamoDBProxyServer;
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
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
        MemoryBackend backend = new MemoryBackend();
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
