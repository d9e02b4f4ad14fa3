<?php
// Runs the clients that are named, each a class in a file of its own, against the server that the environment
// names, and prints a JSON line a check. Start at Checks.php.

declare(strict_types=1);

require 'Checks.php';

$server = new Server(getenv('LOCK_HOST'), (int) getenv('LOCK_PORT'));
foreach (array_slice($argv, 1) as $name) {
    require_once "$name.php";
    (new Checks(new $name($server), $server))->run(getenv('LOCK_PREFIX') . strtolower($name) . ':');
}
