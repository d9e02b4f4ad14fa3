package lockwarden.clients;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** One way in which a library is used. {@link Checks} asks it for parties and runs them against each other. */
abstract class Client implements AutoCloseable {
    /** One check; the name is the lock that it may use. */
    interface Check {
        void run(String name) throws Exception;
    }

    /** What the program's arguments call it. */
    abstract String slug();

    abstract String name();

    /** The property of versions.properties. */
    abstract String library();

    /** Somebody new, as far from all others as the use allows: a JVM of its own. */
    abstract Party party() throws Exception;

    /** One of several that contend, numbered from 0; these may share a client or a connection. */
    Party contender(int number) throws Exception {
        return party();
    }

    /** The key that the library makes of a lock's name. */
    String key(String name) {
        return name;
    }

    /** All of them, where it makes several. */
    List<String> keys(String name) {
        return List.of(key(name));
    }

    /** What in a lock's value says who holds it. */
    String owners(String value) {
        return value;
    }

    /** Checks of this library alone, and those that it must do in another way than all others. */
    Map<String, Check> more(Checks checks) {
        return new LinkedHashMap<>();
    }

    @Override
    public void close() throws Exception {}
}
